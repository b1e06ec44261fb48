"""Reads a line of `conntrack -L`: who asked which address, who answers, and what is known of the packets. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from nodelib.firewall.trace_model import endpoint_text

_STATE = re.compile(r"[A-Z][A-Z0-9_]*")


class Direction(NamedTuple):
    """What one side sends. Ends are address:port, or an address alone where the protocol has no ports.

    `packets`, `size` (bytes): None while the kernel does not count (net.netfilter.nf_conntrack_acct).
    """

    source: str
    destination: str
    packets: int | None
    size: int | None


class Tracked(NamedTuple):
    """A connection. `back`: what answers, whose source is the endpoint that was chosen.

    `state`: the kernel's name of it, "" for protocols without states.
    """

    protocol: str
    state: str
    is_answered: bool
    there: Direction
    back: Direction


def parse(line: str) -> Tracked | None:
    """The connection of a line, None for a line of another form."""
    words = line.split()
    starts = [number for number, word in enumerate(words) if word.startswith("src=")]
    if len(starts) != 2:
        return None
    before, there, back = words[: starts[0]], words[starts[0] : starts[1]], words[starts[1] :]
    ways = _direction(there), _direction(back)
    if not before or ways[0] is None or ways[1] is None:
        return None
    state = next(filter(_STATE.fullmatch, before[1:]), "")
    return Tracked(before[0].upper(), state, "[UNREPLIED]" not in words, ways[0], ways[1])


def _direction(words: list[str]) -> Direction | None:
    found = dict(word.split("=", 1) for word in words if "=" in word)
    ends = _end(found, "src", "sport"), _end(found, "dst", "dport")
    if "" in ends:
        return None
    return Direction(*ends, _number(found.get("packets", "")), _number(found.get("bytes", "")))


def _end(found: dict[str, str], address: str, port: str) -> str:
    """ "" for what is not there, or no number."""
    if port not in found:
        return found.get(address, "")
    number = _number(found[port])
    return "" if number is None else endpoint_text(found.get(address, ""), number)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None
