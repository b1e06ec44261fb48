"""Ranges of addresses as users write them."""

from __future__ import annotations

from ipaddress import ip_address
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadbalancer.plan.pool import Pool, parse
from nodelib.errors import Invalid


@pytest.mark.parametrize(
    ("text", "sizes", "shown"),
    [
        pytest.param("192.0.2.7", {4: 1}, "192.0.2.7", id="one-address"),
        pytest.param("192.0.2.7-192.0.2.9", {4: 3}, "192.0.2.7-192.0.2.9", id="range"),
        pytest.param(" 192.0.2.7 - 192.0.2.9 ", {4: 3}, "192.0.2.7-192.0.2.9", id="blanks"),
        pytest.param("192.0.2.16/29", {4: 6}, "192.0.2.17-192.0.2.22", id="network-without-its-ends"),
        pytest.param("192.0.2.16/31", {4: 2}, "192.0.2.16-192.0.2.17", id="network-of-two"),
        pytest.param("fd00::/126", {6: 4}, "fd00::-fd00::3", id="ipv6-network"),
        pytest.param("192.0.2.1,fd00::1", {4: 1, 6: 1}, "192.0.2.1,fd00::1", id="both-families"),
        pytest.param("", {}, "", id="nothing"),
    ],
)
def test_ranges(text: str, sizes: dict[int, int], shown: str) -> None:
    pool = parse([text])
    assert {family: pool.size(family) for family in pool.families} == sizes
    assert str(pool) == shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "is not a range"),
        ("192.0.2.9-192.0.2.7", "does not begin before it ends"),
        ("192.0.2.1-fd00::1", "does not begin before it ends"),
        ("192.0.2.1/24", "host bits"),
        ("127.0.0.1", "loopback"),
        ("224.0.0.1", "multicast"),
        ("fe80::1%eth0", "is not a range"),
        ("192.0.2.1,192.0.2.0/24", "overlaps"),
        (",".join(f"192.0.2.{n}" for n in range(1, 19)), "18 ranges"),
        ("1" * 100000, "is not a range"),
    ],
)
def test_what_is_no_pool_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(Invalid, match=said) as caught:
        parse([text])
    assert len(str(caught.value)) < 700 and caught.value.action


@given(st.text(max_size=60))
def test_any_text_is_a_pool_or_invalid(text: str) -> None:
    try:
        assert isinstance(parse([text]), Pool)
    except Invalid:
        pass


def test_a_large_range_is_never_listed() -> None:
    pool = parse(["fd00::/64"])
    assert pool.size(6) == 1 << 64
    assert list(map(str, islice(pool.addresses(6), 2))) == ["fd00::", "fd00::1"]
    assert ip_address("fd00::ffff:0:0:1") in pool and ip_address("fd01::1") not in pool
