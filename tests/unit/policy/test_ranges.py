"""Ranges: the same numbers, none twice."""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from policy.model import Block, PortRange
from policy.plan.ranges import block_ranges, merged, port_ranges, without

_RANGES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(lambda ends: (min(ends), max(ends))))


def _numbers(ranges: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in ranges for number in range(first, last + 1)}


@given(_RANGES)
def test_merged_ranges_have_the_same_numbers_and_a_gap_between_them(ranges: list[tuple[int, int]]) -> None:
    found = merged(ranges)
    assert _numbers(found) == _numbers(ranges)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))


@given(_RANGES, st.integers(0, 60), st.integers(0, 60))
def test_without_leaves_out_the_holes(holes: list[tuple[int, int]], one: int, other: int) -> None:
    whole = (min(one, other), max(one, other))
    assert _numbers(without(whole, holes)) == _numbers([whole]) - _numbers(holes)


@given(
    st.integers(24, 32),
    st.lists(st.tuples(st.integers(0, 511), st.integers(24, 32)), max_size=6),
    st.integers(0, 511),
)
def test_a_block_has_the_addresses_that_ipaddress_says(length: int, holes: list[tuple[int, int]], probe: int) -> None:
    base = int(ip_address("10.0.0.0"))
    cidr = ip_network((base, length))
    excepted = tuple(ip_network((base + offset, size), strict=False) for offset, size in holes)
    address = ip_address(base + probe)
    wanted = address in cidr and not any(address in one for one in excepted)
    assert (int(address) in _numbers(block_ranges(Block(cidr, excepted)))) is wanted


def test_ten_thousand_ports_that_touch_are_one_range_for_each_protocol() -> None:
    ports = [PortRange(protocol, port, port) for port in range(1, 10_001) for protocol in ("UDP", "TCP")]
    assert port_ranges(ports) == {"TCP": [(1, 10_000)], "UDP": [(1, 10_000)]}
