"""Ranges without overlaps: the kernel refuses a set whose ranges overlap, policies may well have such. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from policy.model import Block, Networks, PortRange

Range = tuple[int, int]  # first and last, both included


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same numbers in the fewest ranges, in order."""
    found: list[Range] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def without(whole: Range, holes: Iterable[Range]) -> list[Range]:
    """The numbers of `whole` that are in none of the holes."""
    found: list[Range] = []
    start, end = whole
    for first, last in merged(holes):
        if last < start or first > end:
            continue
        if first > start:
            found.append((start, first - 1))
        start = last + 1
    if start <= end:
        found.append((start, end))
    return found


def block_ranges(block: Block) -> list[Range]:
    """The addresses of an ipBlock as numbers. Exceptions of the other family take nothing away."""
    whole = (int(block.cidr.network_address), int(block.cidr.broadcast_address))
    holes = [
        (int(one.network_address), int(one.broadcast_address))
        for one in block.excepted
        if one.version == block.cidr.version
    ]
    return without(whole, holes)


def network_ranges(networks: Networks, version: int) -> list[Range]:
    """The addresses of one IP version in any of the networks, as numbers."""
    return merged(
        (int(one.network_address), int(one.broadcast_address)) for one in networks.cidrs if one.version == version
    )


def port_ranges(ports: Iterable[PortRange]) -> dict[str, list[Range]]:
    """The ports of each protocol."""
    found: dict[str, list[Range]] = {}
    for one in ports:
        found.setdefault(one.protocol, []).append((one.first, one.last))
    return {protocol: merged(ranges) for protocol, ranges in sorted(found.items())}
