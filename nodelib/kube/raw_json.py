"""JSON as an API server sends it, which is not always what JSON's standard says.

What users write into managedFields, or into the parameters of a ResourceClaim, is handed on as it came: nested up to
10,000 levels deep (sigs.k8s.io/json), in bytes that are no UTF-8, with halves of surrogate pairs. Go's clients take
that. orjson does not, and would refuse all other objects of a list with the one that has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

MOST_LEVELS = 200  # no field that a node reads lies deeper; orjson reads 1,024 and writes 254

# With no bracket of a list inside but in texts, as an API server writes them: sets of fields are objects alone.
_MANAGED = re.compile(rb'"managedFields":\[(?:[^"\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+\]', re.DOTALL)
# Up to the next bracket that opens or closes something which is not empty, past texts and all else, in one step.
_BRACKET = re.compile(rb'(?:[^"{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"|\{\}|\[\])*+([{}\[\]])', re.DOTALL)
_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\.", re.DOTALL
)
_HALF = 6  # bytes of an escaped half of a pair that is alone


def standard(raw: bytes) -> bytes | None:
    """The same as JSON that every reader takes, without managedFields and what is nested deeply.

    None: it is that already, or is no JSON at all. Blocking: a quarter of a second for a megabyte of other brackets.
    """
    if _is_read(raw) or raw.lstrip()[:1] != b"{":
        return None
    flat = _MANAGED.sub(b'"managedFields":[]', raw.decode(errors="replace").encode())
    if not _is_read(flat):
        flat = _flat(flat)
    if not _is_read(flat):
        flat = _ESCAPE.sub(_whole, flat)
    return flat if _is_read(flat) else None


def _is_read(raw: bytes) -> bool:
    try:
        orjson.loads(raw)
    except orjson.JSONDecodeError:
        return False
    return True


def _flat(raw: bytes) -> bytes:
    """With null in the place of what is nested more than MOST_LEVELS deep."""
    kept: list[bytes] = []
    level = done = 0
    for at in _brackets(raw):
        if raw[at] in b"{[":
            level += 1
            if level == MOST_LEVELS + 1:
                kept += [raw[done:at], b"null"]
        else:
            if level == MOST_LEVELS + 1:
                done = at + 1
            level -= 1
    return b"".join((*kept, raw[done:])) if kept else raw


def _brackets(raw: bytes) -> Iterator[int]:
    """Where they are. Not finditer(): after a text without an end it would look for another one from each byte."""
    found = _BRACKET.match(raw)
    while found is not None:
        yield found.end() - 1
        found = _BRACKET.match(raw, found.end())


def _whole(escape: re.Match[bytes]) -> bytes:
    return rb"\ufffd" if len(escape[0]) == _HALF else escape[0]
