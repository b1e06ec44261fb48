"""Filters that the kernel runs on a packet socket (classic BPF): only questions about the pool wake us. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from loadbalancer.plan.frames import ADVERTISEMENT, SOLICITATION
from loadbalancer.plan.pool import Pool

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, constant

_LOAD_WORD, _LOAD_BYTE = 0x20, 0x30  # from a place in the frame
_AND = 0x54
_EQUAL, _AT_LEAST, _ABOVE = 0x15, 0x35, 0x25
_RETURN = 0x06
_WHOLE = 0x40000  # bytes of the frame that are passed on
_ARP_SENDER, _ARP_TARGET = 28, 38
_NEXT_HEADER, _HOP_LIMIT, _ICMP_TYPE, _ICMP_TARGET = 20, 21, 54, 62
_WORDS = 4


def arp(pool: Pool) -> list[Instruction]:
    """ARP whose sender or target is in the pool."""
    ranges = [(int(one.first), int(one.last)) for one in pool.of(4).ranges]
    found: list[Instruction] = []
    for place in (_ARP_SENDER, _ARP_TARGET):
        found.append((_LOAD_WORD, 0, 0, place))
        for first, last in ranges:
            found += [(_AT_LEAST, 0, 2, first), (_ABOVE, 1, 0, last), (_RETURN, 0, 0, _WHOLE)]
    return [*found, (_RETURN, 0, 0, 0)]


def ndp(pool: Pool) -> list[Instruction]:
    """Neighbour solicitations and advertisements whose target has the common beginning of a range."""
    found: list[Instruction] = [
        *_unless_equal((_LOAD_BYTE, 0, 0, _NEXT_HEADER), 58),
        *_unless_equal((_LOAD_BYTE, 0, 0, _HOP_LIMIT), 255),
        (_LOAD_BYTE, 0, 0, _ICMP_TYPE),
        (_EQUAL, 2, 0, SOLICITATION),
        (_EQUAL, 1, 0, ADVERTISEMENT),
        (_RETURN, 0, 0, 0),
    ]
    for one in pool.of(6).ranges:
        found += _prefix(int(one.first), int(one.last))
    return [*found, (_RETURN, 0, 0, 0)]


def packed(program: Iterable[Instruction]) -> bytes:
    """As the kernel reads it (struct sock_filter)."""
    return b"".join(struct.pack("HBBI", *one) for one in program)


def _unless_equal(load: Instruction, wanted: int) -> list[Instruction]:
    return [load, (_EQUAL, 1, 0, wanted), (_RETURN, 0, 0, 0)]


def _prefix(first: int, last: int) -> list[Instruction]:
    """Accepts a target that begins as both ends of the range do."""
    same = 128 - (first ^ last).bit_length()
    mask = ((1 << same) - 1) << (128 - same)
    steps: list[tuple[int, int, int]] = []
    for number in range(_WORDS):
        shift = 32 * (_WORDS - 1 - number)
        word_mask = (mask >> shift) & 0xFFFFFFFF
        if word_mask:
            steps.append((number, word_mask, (first >> shift) & word_mask))
    found: list[Instruction] = []
    for index, (number, word_mask, value) in enumerate(steps):
        after = 3 * (len(steps) - 1 - index) + 1  # the rest of this range, and its acceptance
        found += [(_LOAD_WORD, 0, 0, _ICMP_TARGET + 4 * number), (_AND, 0, 0, word_mask), (_EQUAL, 0, after, value)]
    return [*found, (_RETURN, 0, 0, _WHOLE)]
