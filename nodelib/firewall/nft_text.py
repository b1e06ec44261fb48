"""Prints expressions of nftables' JSON roughly as nft(8) does, for people to read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_BINARY = ("&", "|", "^")


def expression_text(expression: Any) -> str:
    """The text of one statement or value."""
    if isinstance(expression, list):
        return ",".join(map(expression_text, expression))
    if not isinstance(expression, Mapping):
        return str(expression)
    kind, body = next(iter(expression.items()))
    if kind == "match":
        operator = "!= " if body["op"] == "!=" else ""
        return f"{expression_text(body['left'])} {operator}{expression_text(body['right'])}"
    if kind in ("payload", "meta", "ct", "fib", "numgen", "prefix", "range", "concat", "set", *_BINARY):
        return _value(kind, body)
    if kind in ("jump", "goto"):
        return f"{kind} {body['target']}"
    if kind in ("vmap", "map"):
        return f"{expression_text(body['key'])} {kind} {expression_text(body['data'])}"
    if kind == "mangle":
        return f"{expression_text(body['key'])} set {expression_text(body['value'])}"
    if kind in ("dnat", "snat"):
        parts = [expression_text(body[name]) for name in ("addr", "port") if name in body]
        return f"{kind} to {':'.join(parts)}"
    if kind == "counter":
        return ""
    return str(kind)


def _value(kind: str, body: Any) -> str:
    if kind == "payload":
        return f"{body.get('protocol', '')} {body.get('field', '')}".strip()
    if kind in ("meta", "ct"):
        where = f"{body['dir']} " if "dir" in body else ""
        return f"{kind} {where}{body['key']}"
    if kind == "fib":
        return f"fib {' . '.join(body.get('flags', []))} {body.get('result', '')}"
    if kind == "numgen":
        return f"numgen {body.get('mode', '')} mod {body.get('mod', '')}"
    if kind == "prefix":
        return f"{body['addr']}/{body['len']}"
    if kind == "range":
        return f"{body[0]}-{body[1]}"
    if kind == "concat":
        return " . ".join(map(expression_text, body))
    if kind == "set":
        shown = ", ".join(_element(one) for one in body[:4])
        return "{ " + shown + (", …" if len(body) > 4 else "") + " }"
    return f" {kind} ".join(map(expression_text, body))


def _element(one: Any) -> str:
    if isinstance(one, list) and len(one) == 2:
        return f"{expression_text(one[0])} : {expression_text(one[1])}"
    return expression_text(one)
