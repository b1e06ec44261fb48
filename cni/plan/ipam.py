"""Chooses the address of a pod. Pure.

Round robin: the search starts after the address that was assigned last. A released address is therefore unused for as
long as the range allows, and a peer's stale connection does not reach another pod too soon.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from cni.model import Address, AddressRange, RangeSet


def pick(
    ranges: RangeSet, taken: Collection[Address], last: Address | None, wanted: Address | None = None
) -> Address | None:
    """The next free address of `ranges`, or `wanted` if it is free and inside; None when there is none.

    It is never the gateway of a range nor one of `taken`. The search skips at most len(taken) + len(ranges) addresses,
    however large the ranges are.
    """
    gateways = {item.gateway for item in ranges}
    if wanted is not None:
        inside = any(wanted in item for item in ranges)
        return wanted if inside and wanted not in gateways and wanted not in taken else None
    for address in _after(ranges, last):
        if address not in gateways and address not in taken:
            return address
    return None


def _after(ranges: RangeSet, last: Address | None) -> Iterator[Address]:
    """Every address of the set once, starting after `last`."""
    start = next((n for n, item in enumerate(ranges) if last is not None and last in item), None)
    if start is None or last is None:
        for item in ranges:
            yield from _between(item, int(item.first), int(item.last))
        return
    yield from _between(ranges[start], int(last) + 1, int(ranges[start].last))
    for item in (*ranges[start + 1 :], *ranges[:start]):
        yield from _between(item, int(item.first), int(item.last))
    yield from _between(ranges[start], int(ranges[start].first), int(last))


def _between(item: AddressRange, low: int, high: int) -> Iterator[Address]:
    kind = type(item.first)
    for value in range(low, high + 1):
        yield kind(value)
