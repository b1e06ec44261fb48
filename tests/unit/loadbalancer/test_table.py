"""The table as the text of an annotation."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadbalancer.model import Row, Table
from loadbalancer.plan.allocate import MOST_ADDRESSES
from loadbalancer.plan.table import LARGEST, from_text, to_text

_ROWS = st.dictionaries(
    st.ip_addresses(), st.builds(Row, st.lists(st.text(max_size=40), max_size=3).map(tuple), st.text(max_size=60))
)


@given(_ROWS)
def test_what_is_written_is_read(rows: dict[Any, Row]) -> None:
    rows = {one: row for one, row in rows.items() if "%" not in str(one)}
    assert from_text(to_text(Table(rows))) == Table(rows)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        pytest.param(None, {}, id="none"),
        pytest.param("", {}, id="empty"),
        pytest.param("[]", {}, id="no-object"),
        pytest.param('{"x":1}', {}, id="no-address"),
        pytest.param('{"192.0.2.1":1}', {ip_address("192.0.2.1"): Row(())}, id="no-row"),
        pytest.param("[" * 100000, {}, id="deep"),
        pytest.param("{" + "9" * 600000, {}, id="large"),
    ],
)
def test_what_somebody_else_wrote(text: object, rows: dict[Any, Row]) -> None:
    assert from_text(text) == Table(rows)


def test_the_largest_table_has_room() -> None:
    uid = "2a22ea2c-1782-4132-8ed4-aadc2f5c6ab4"
    rows = {ip_address((0xFD00 << 112) + number): Row((uid,), "n" * 63) for number in range(MOST_ADDRESSES)}
    assert len(to_text(Table(rows))) < LARGEST
