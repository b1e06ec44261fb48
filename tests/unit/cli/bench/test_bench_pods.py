"""The table of `bench pods`: each list of the result has its row, pods without a token volume beside the others."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from cli.bench.pods import Result, main
from cli.bench.pods_table import rows
from cli.bench.reactions import Reactions


def filled(value: float, made: Any = None) -> Any:
    """A result, or another object of figures, that has `value` everywhere."""
    made = Result() if made is None else made
    for one in fields(made):
        there = getattr(made, one.name)
        if isinstance(there, Reactions):
            filled(value, there)
        else:
            setattr(made, one.name, [value] if isinstance(there, list) else value)
    return made


def test_pods_without_a_token_volume_are_a_row_of_their_own() -> None:
    ours, peer = filled(1), filled(2)
    ours.ready_without_token, peer.ready_without_token = [0.3, 0.31, 0.5], [0.32]
    found = {row.measure: row for row in rows(ours, peer)}
    row = found["create to Ready without a token volume, p50"]
    assert (row.ours, row.peer, row.verdict) == (0.31, 0.32, "-")
    assert found["create to Ready, one at a time, p50"].ours == 1
    assert list(found).index(row.measure) == 1, "beside the row that it puts in its place"


def test_a_pod_without_a_token_volume_differs_in_nothing_else() -> None:
    assert main("pause", token=False) == {**main("pause"), "automountServiceAccountToken": False}


@pytest.mark.parametrize("name", [one.name for one in fields(Result) if one.name != "reactions"])
def test_every_figure_is_in_the_table(name: str) -> None:
    one = filled(1)
    setattr(one, name, getattr(filled(7), name))
    assert [row.ours for row in rows(one, None)] != [row.ours for row in rows(filled(1), None)]
