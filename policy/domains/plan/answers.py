"""Reads DNS answers (RFC 1035, 3596): the question's name, the CNAMEs that lead on from it, and addresses. Pure.

Whatever the bytes are, reading them never raises, and the work is bounded: so many records, names of 255 bytes,
each pointer further to the front than the last, and no more of them than a name has labels. A server of ours has sent
them, but what they say comes from whoever owns the names. So only the name that the pod asked for counts, and what that
name leads to in this very answer: an answer to another question says nothing about a name, whatever records it has.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from policy.domains.model import Answer
from policy.model import Address

_HEADER = struct.Struct(">HHHHHH")
_RECORD = struct.Struct(">HHIH")
_RESPONSE, _OPCODE, _CODE = 0x8000, 0x7800, 0x000F
_A, _CNAME, _AAAA = 1, 5, 28
_INTERNET = 1
_MOST_RECORDS = 512
_LONGEST_NAME = 255
_MOST_POINTERS = 128  # of a name: it has no more labels
_MOST_ALIASES = 16
_LABEL = re.compile(rb"[a-z0-9_-]+")

# A name as its labels: one of them may have a dot in it, which as text would be another name.
_Labels = tuple[bytes, ...]


class _Broken(Exception):
    """The message is none."""


def answer(message: bytes, wanted: Callable[[str], bool] = lambda name: True) -> Answer | None:
    """What the message says of the name it was asked for; None if it is no answer, or says no address.

    Nothing more is read of an answer for a name that is not `wanted`: hundreds of records take 50 times as long.
    """
    try:
        return _answer(message, wanted)
    except (_Broken, struct.error, IndexError):
        return None


def _answer(message: bytes, wanted: Callable[[str], bool]) -> Answer | None:
    _, flags, questions, records, _, _ = _HEADER.unpack_from(message)
    if not flags & _RESPONSE or flags & (_OPCODE | _CODE) or questions != 1:
        return None
    asked, at = _name(message, _HEADER.size)
    _, kind = struct.unpack_from(">HH", message, at)
    if kind != _INTERNET or not asked or not all(map(_LABEL.fullmatch, asked)):
        return None
    name = b".".join(asked).decode()
    if not wanted(name):
        return None
    aliases: dict[_Labels, tuple[_Labels, int]] = {}
    addresses: dict[_Labels, list[tuple[Address, int]]] = {}
    _read(message, at + 4, min(records, _MOST_RECORDS), aliases, addresses)
    found = _followed(asked, aliases, addresses)
    return Answer(name, tuple(found)) if found else None


def _read(
    message: bytes,
    at: int,
    count: int,
    aliases: dict[_Labels, tuple[_Labels, int]],
    addresses: dict[_Labels, list[tuple[Address, int]]],
) -> None:
    """The records of the answer section; those of a message that was cut off as far as they are there."""
    for _ in range(count):
        try:
            owner, at = _name(message, at)
            kind, group, seconds, length = _RECORD.unpack_from(message, at)
        except (_Broken, struct.error, IndexError):
            return
        data, at = at + _RECORD.size, at + _RECORD.size + length
        if at > len(message):
            return
        if group != _INTERNET:
            continue
        # RFC 2181, 8: the highest bit has no meaning, such a time is none.
        seconds = 0 if seconds >> 31 else seconds
        if kind == _A and length == 4:
            addresses.setdefault(owner, []).append((IPv4Address(message[data:at]), seconds))
        elif kind == _AAAA and length == 16:
            addresses.setdefault(owner, []).append((IPv6Address(message[data:at]), seconds))
        elif kind == _CNAME:
            aliases.setdefault(owner, (_name(message, data)[0], seconds))


def _followed(
    name: _Labels,
    aliases: dict[_Labels, tuple[_Labels, int]],
    addresses: dict[_Labels, list[tuple[Address, int]]],
) -> list[tuple[Address, int]]:
    """The addresses at the end of the aliases, none for longer than the aliases last."""
    longest = 0xFFFFFFFF
    for _ in range(_MOST_ALIASES):
        if name in addresses:
            return [(one, min(seconds, longest)) for one, seconds in addresses[name]]
        if name not in aliases:
            break
        name, seconds = aliases[name]
        longest = min(longest, seconds)
    return []


def _name(message: bytes, at: int) -> tuple[_Labels, int]:
    """The name at a place, in lower case, and the place behind it. Raises _Broken and IndexError."""
    labels: list[bytes] = []
    size, behind, limit, pointers = 0, -1, at, 0
    while True:
        length = message[at]
        if length == 0:
            return tuple(labels), at + 1 if behind < 0 else behind
        if length >= 0xC0:
            target = (length & 0x3F) << 8 | message[at + 1]
            behind = at + 2 if behind < 0 else behind
            pointers += 1
            if target >= limit or pointers > _MOST_POINTERS:
                raise _Broken
            at = limit = target
            continue
        size += length + 1
        if length > 63 or size >= _LONGEST_NAME or at + length >= len(message):
            raise _Broken
        labels.append(message[at + 1 : at + 1 + length].lower())
        at += length + 1
