"""Evaluates nftables expressions and set lookups for one packet (libnftables-json(5)). Pure.

Anything unknown raises Invalid; `trace_nft.py` decides whether the trace branches then.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodelib.errors import Invalid
from nodelib.firewall.trace_model import Branch, Node
from nodelib.json_values import Json

_PROTOCOLS = {6: "tcp", 17: "udp", 132: "sctp", 1: "icmp", 58: "ipv6-icmp"}
_NUMBERS = {name: number for number, name in _PROTOCOLS.items()}


@dataclass(slots=True)
class Table:
    """Chains and sets of one table."""

    family: str
    name: str
    rules: dict[str, list[Json]] = field(default_factory=dict)
    elements: dict[str, list[Any]] = field(default_factory=dict)
    indexes: dict[str, Index] = field(default_factory=dict)


@dataclass(slots=True)
class Index:
    """The elements of a set, of which there may be hundreds of thousands. `others`: ranges, prefixes and patterns."""

    values: dict[Any, Any] = field(default_factory=dict)
    others: list[Any] = field(default_factory=list)


def matches(table: Table, body: Json, branch: Branch, node: Node) -> bool:
    """Whether a match statement holds for this packet. Raises Invalid for an unknown one."""
    if _is_sender(body["left"]):
        return False  # a packet is taken to come from whom it says: only forged ones meet such a rule
    right, operator = body["right"], body["op"]
    for value in values(table, body["left"], branch, node):
        if isinstance(right, str) and right.startswith("@"):
            hit = bool(list(lookup(table, right, value)))
        elif isinstance(value, frozenset):
            wanted = right if isinstance(right, list) else [right]
            if isinstance(right, Mapping) and "set" in right:
                wanted = right["set"]
            hit = bool(value & {str(one) for one in wanted})
            if operator == "in":
                operator = "=="
        else:
            hit = _equal(value, right)
        if operator in ("!=",):
            hit = not hit
        elif operator not in ("==", "in"):
            raise Invalid(
                f"an operator that the tracer does not know: {operator}", obj="nftables", step="trace a packet"
            )
        if hit:
            return True
    return False


def _is_sender(expression: Any) -> bool:
    """nft shows it by its place, unless the rule asks for the kind of the link first."""
    if isinstance(expression, Mapping) and "concat" in expression:
        return any(map(_is_sender, expression["concat"]))
    payload = expression.get("payload") if isinstance(expression, Mapping) else None
    return isinstance(payload, Mapping) and (payload.get("protocol") == "ether" or payload.get("base") == "ll")


def values(table: Table, expression: Any, branch: Branch, node: Node) -> list[Any]:
    """The values an expression may have for this packet: several if chance decides, none if a map has none."""
    if not isinstance(expression, Mapping):
        return [expression]
    kind, body = next(iter(expression.items()))
    if kind == "concat":
        parts = [values(table, one, branch, node) for one in body]
        return [tuple(combination) for combination in itertools.product(*parts)]
    if kind == "map":
        keys = values(table, body["key"], branch, node)
        return [_plain(value) for key in keys for value in lookup(table, body["data"], key)]
    if kind == "numgen":
        offset = int(body.get("offset", 0))
        return list(range(offset, offset + int(body["mod"])))
    if kind in ("&", "|", "^"):
        left, right = (number(values(table, one, branch, node)[0]) for one in body)
        return [{"&": left & right, "|": left | right, "^": left ^ right}[kind]]
    return [_fact(kind, body, branch, node)]


def _fact(kind: str, body: Json, branch: Branch, node: Node) -> Any:
    packet = branch.packet
    if kind == "payload":
        found = {"saddr": packet.source, "daddr": packet.destination, "dport": packet.port}.get(body.get("field", ""))
        known = ("ip", "ip6", "th", packet.protocol)
        if found is not None and body.get("protocol") in known:
            return found
        if body.get("field") == "protocol":
            return packet.protocol
        if body.get("protocol") in ("tcp", "udp", "sctp"):
            return None  # another protocol's header
    if kind == "meta":
        facts = {"l4proto": packet.protocol, "mark": packet.mark, "iifname": packet.interface, "iif": packet.interface}
        if body["key"] in facts:
            return facts[body["key"]]
    if kind == "ct":
        return _connection(body, branch)
    if kind == "fib" and body.get("result") == "type":
        address = packet.destination if "daddr" in body["flags"] else packet.source
        local = node.is_local(address) or ("saddr" in body["flags"] and not packet.interface)
        return "local" if local else "unicast"
    raise Invalid(f"a match that the tracer does not know: {kind} {body}", obj="nftables", step="trace a packet")


def _connection(body: Json, branch: Branch) -> Any:
    key = str(body["key"]).split(" ")[-1]
    if key == "state":
        return frozenset({"new"})
    if key == "status":
        return frozenset({"dnat"} if branch.translated else ())
    if key == "mark":
        return 0
    if key == "direction":
        return "original"
    sent = branch.sent
    if body.get("dir") == "reply":
        # Whoever answers: the destination as it is translated so far.
        answers = {"saddr": branch.packet.destination, "proto-src": branch.packet.port, "daddr": sent.source}
        if key in answers:
            return answers[key]
    found = {"saddr": sent.source, "daddr": sent.destination, "proto-dst": sent.port, "protocol": sent.protocol}
    if key in found:
        return found[key]
    raise Invalid(f"a match that the tracer does not know: ct {key}", obj="nftables", step="trace a packet")


def lookup(table: Table, data: Any, key: Any) -> Iterable[Any]:
    """The values of `key` in a map, or [True] if it is in a set."""
    elements: Sequence[Any]
    if isinstance(data, str):
        name = data.removeprefix("@")
        index = table.indexes.get(name)
        if index is None:
            index = table.indexes[name] = _indexed(table.elements.get(name, []))
        plain = index.values.get(_hashable(key))
        if plain is not None:
            return [plain]
        # Where a protocol is not the second part, nft may have written its number.
        elements = table.elements.get(name, []) if _names_a_protocol(key) else index.others
    else:
        elements = data["set"]
    for element in elements:
        wanted, value = _pair(element)
        if _equal(key, wanted):
            return [value]
    return []


def _indexed(elements: Iterable[Any]) -> Index:
    found = Index()
    for element in elements:
        wanted, value = _pair(element)
        found.values.setdefault(_hashable(wanted), value)
        plain = _plain(wanted)
        parts = plain if isinstance(plain, tuple) else (plain,)
        if any(isinstance(part, Mapping) or (isinstance(part, str) and part.endswith("*")) for part in parts):
            found.others.append(element)
    return found


def _names_a_protocol(key: Any) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return any(part in _NUMBERS for number, part in enumerate(parts) if isinstance(part, str) and number != 1)


def _pair(element: Any) -> tuple[Any, Any]:
    if isinstance(element, list) and len(element) == 2:
        return _unwrapped(element[0]), element[1]
    return _unwrapped(element), True


def _unwrapped(value: Any) -> Any:
    if isinstance(value, Mapping) and "elem" in value:
        return value["elem"]["val"]
    return value


def _plain(value: Any) -> Any:
    value = _unwrapped(value)
    if isinstance(value, Mapping) and "concat" in value:
        return tuple(value["concat"])
    return value


def _hashable(value: Any) -> Any:
    value = _plain(value)
    parts = value if isinstance(value, tuple) else (value,)
    return tuple(
        [
            str(_PROTOCOLS.get(part, part) if isinstance(part, int) and index == 1 else part)
            for index, part in enumerate(parts)
        ]
    )


def _equal(value: Any, wanted: Any) -> bool:
    wanted = _unwrapped(wanted)
    if isinstance(wanted, Mapping):
        kind, body = next(iter(wanted.items()))
        if kind == "concat":
            return (
                isinstance(value, tuple)
                and len(value) == len(body)
                and all(_equal(part, one) for part, one in zip(value, body, strict=True))
            )
        if kind == "prefix":
            return value is not None and ipaddress.ip_address(str(value)) in ipaddress.ip_network(
                f"{body['addr']}/{body['len']}", strict=False
            )
        if kind == "range":
            return _between(value, *body)
        if kind == "set":
            return any(_equal(value, one) for one in body)
        raise Invalid(f"a value that the tracer does not know: {kind}", obj="nftables", step="trace a packet")
    if isinstance(wanted, str) and wanted.endswith("*") and isinstance(value, str):
        return value.startswith(wanted[:-1])
    return str(value) == str(_PROTOCOLS.get(wanted, wanted) if isinstance(value, str) else wanted)


def _between(value: Any, low: Any, high: Any) -> bool:
    if isinstance(low, int):
        return low <= number(_NUMBERS.get(str(value), value)) <= int(high)
    first, last, own = (ipaddress.ip_address(str(one)) for one in (low, high, value))
    return first.version == own.version and int(first) <= int(own) <= int(last)


def number(value: Any) -> int:
    """A number, or the number that a text stands for."""
    return value if isinstance(value, int) else int(str(value), 0)
