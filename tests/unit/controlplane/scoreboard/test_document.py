"""docs/scoreboard.json is compact, and a part that was run changes its own lines only."""

from __future__ import annotations

import difflib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane.scoreboard.model import Outcome, Run
from controlplane.scoreboard.plan import document, names
from nodelib.errors import Invalid

TEXT = (Path(__file__).resolve().parents[4] / "docs/scoreboard.json").read_text()


def test_names_are_a_tree_of_words() -> None:
    leaves = {"[a] Pods run": 1, "[a] Pods run well": 2, "[a] Pods stop": 3, "[b]  two blanks": 4, "[b]  two": None}
    tree = names.fold(leaves)
    assert tree == {"[a] Pods": {"run": {"": 1, "well": 2}, "stop": 3}, "[b]  two": {"blanks": 4, "": None}}
    assert dict(names.unfold(tree)) == leaves


def test_every_name_of_the_scoreboard_comes_back() -> None:
    board = document.read(TEXT, {})
    every = sorted({spec.name for spec in board.partition.specs})
    numbered = {name: number for number, name in enumerate(every)}
    assert dict(names.unfold(names.fold(numbered))) == numbered


def test_it_is_written_with_a_line_for_each_spec_and_no_name_twice() -> None:
    board = document.read(TEXT, {})
    assert document.write(board) == TEXT, "python -m controlplane.scoreboard makes it again"
    assert len(TEXT) < 200 * len(board.partition.specs) + 500 * len(board.runs)  # names alone have 180 on average


def test_a_part_that_was_run_changes_its_own_lines_only() -> None:
    board = document.read(TEXT, {})
    part = next(one for one in board.partition.parts if (one.name, "nodewright") not in board.runs)
    reason = "a reason that no other has"
    outcomes = {spec.name: Outcome("failed", 1.0, reason, Outcome("passed", 2.0)) for spec in part.specs[1:]}
    missed = (part.specs[0].name,)
    program = part.specs[0].program
    run = Run(
        part.name, "nodewright", program, board.kubernetes, "abc", "2026-11-27", "a machine", 9.0, outcomes, missed
    )
    changed = replace(board, runs={**board.runs, (part.name, "nodewright"): run})
    text = document.write(changed)
    lines = [
        line
        for line in difflib.unified_diff(TEXT.splitlines(), text.splitlines(), lineterm="", n=0)
        # A difference may name brackets that are there already as new ones.
        if line.startswith("+") and not line.startswith("+++") and line.strip("+ },")
    ]
    assert len(lines) <= len(part.specs) + 4, "its specs, its run and the reason, with a line above each of both"
    assert text.count(reason) == 1
    assert document.read(text, {}) == changed


def _with(**changes: object) -> str:
    return json.dumps({**json.loads(TEXT), **changes})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "[" * 100_000,
        _with(machine=1),
        _with(parts=[{"name": "x", "suite": "none", "runs": {}, "specs": {"a": None}}]),
        _with(parts=[{"name": "x", "suite": "e2e.test", "runs": {"nobody": {}}, "specs": {}}]),
        _with(parts=[{"name": "x", "suite": "e2e.test", "runs": {"upstream": {}}, "specs": {"a": [1]}}]),
        _with(parts=[{"name": "x", "suite": "e2e.test", "runs": {"upstream": {"z": 1}}, "specs": {"a": None}}]),
    ],
    ids=["empty", "list", "deep", "machine", "suite", "maker", "leaf", "run"],
)
def test_what_is_no_scoreboard_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="not a scoreboard"):
        document.read(text, {})
