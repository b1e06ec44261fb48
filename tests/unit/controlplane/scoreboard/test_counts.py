"""How specs are counted, and where the two makers differ."""

from __future__ import annotations

from dataclasses import replace

from controlplane.scoreboard.model import Machine, Outcome, Partition, Program, Run, Spec, Verdict
from controlplane.scoreboard.plan import counts, document, page
from controlplane.scoreboard.plan.partition import partition

PREFIX = "[sig-node] Pods [Feature:Mirrors]"
NAMES = {word: f"{PREFIX} {word}" for word in ("good", "ours", "theirs", "both", "one-skips", "skips", "late")}
SPECS = (*(Spec(Program.NODE, name) for name in NAMES.values()), Spec(Program.NODE, "[sig-node] ContainerCopies"))
WITH_WINDOWS = (*SPECS, Spec(Program.E2E, "[sig-windows] [Feature:Windows] Pods"))


def _run(divided: Partition, maker: str, verdicts: dict[str, Verdict]) -> Run:
    outcomes = {
        NAMES[word]: Outcome(verdict, 1.0, "" if verdict == "passed" else f"a | reason <b> of {word}")
        for word, verdict in verdicts.items()
    }
    (part,) = divided.parts
    date = "2026-11-26T10:00:00Z"
    missed = tuple(spec.name for spec in part.specs if spec.name not in outcomes)
    return Run(part.name, maker, Program.NODE, "v1.37.1", "abc", date, "2 CPUs", 12.3, outcomes, missed)


def _board(explained: dict[str, str] | None = None) -> document.Board:
    divided = partition(WITH_WINDOWS, frozenset())
    ours: dict[str, Verdict] = {"good": "passed", "ours": "failed", "theirs": "passed", "both": "failed"}
    upstream: dict[str, Verdict] = {"good": "passed", "ours": "passed", "theirs": "failed", "both": "failed"}
    ours |= {"one-skips": "skipped", "skips": "skipped"}
    upstream |= {"one-skips": "passed", "skips": "skipped"}
    runs = {(divided.parts[0].name, m): _run(divided, m, v) for m, v in (("nodewright", ours), ("upstream", upstream))}
    return document.Board("v1.37.1", Machine("2 CPUs"), divided, runs, explained or {})


def test_the_rows() -> None:
    board = _board()
    row = counts.table(board.partition, board.runs)["sig-node", "Feature:Mirrors"]
    assert (row.specs, row.kept_out, row.not_run, row.only_ours, row.only_upstream) == (7, 0, 1, 1, 1)
    assert row.passed == {"nodewright": 2, "upstream": 3} and row.failed == {"nodewright": 2, "upstream": 2}
    assert row.skipped == {"nodewright": 2, "upstream": 1}
    total = counts.total(counts.table(board.partition, board.runs).values())
    assert (total.specs, total.kept_out, total.not_run) == (9, 1, 2)


def test_where_they_differ_and_why_both_skip() -> None:
    board = _board()
    found = counts.both(board.partition, board.runs)
    assert {one.spec.name for one in found if one.differs} == {NAMES["ours"], NAMES["theirs"], NAMES["one-skips"]}
    assert {one.spec.name for one in found if one.both_fail} == {NAMES["both"]}
    assert counts.skips(found) == {"a | reason <b> of skips": 1}


def test_a_difference_without_an_explanation_is_marked() -> None:
    text = page.page(_board({NAMES["ours"]: "It asks for what we do not have."}))
    (ours,) = [line for line in text.splitlines() if line.startswith(f"| {NAMES['ours']} |")]
    (theirs,) = [line for line in text.splitlines() if line.startswith(f"| {NAMES['theirs']} |")]
    assert "It asks for what we do not have." in ours and "not explained" not in ours
    assert "**not explained yet**: a \\| reason &lt;b> of theirs" in theirs


def test_a_part_that_did_not_run_says_so() -> None:
    board = _board()
    without = document.Board(board.kubernetes, board.machine, board.partition, {}, {})
    (line,) = [line for line in page.page(without).splitlines() if line.startswith("| `node-")]
    assert line.count("not run yet") == 2
    total = counts.total(counts.table(without.partition, {}).values())
    assert total.not_run == 8 and not total.passed


def test_the_document_says_all_that_the_page_is_made_from() -> None:
    board = _board({NAMES["ours"]: "Why."})
    assert document.read(document.write(board), board.explanations) == board


def test_what_passes_at_the_second_try_counts_as_passed_and_is_listed() -> None:
    board = _board()
    key = board.partition.parts[0].name, "nodewright"
    second = {NAMES["ours"]: Outcome("passed", 2.0), NAMES["both"]: Outcome("failed", 3.0, "again")}
    run = board.runs[key]
    outcomes = {name: replace(one, second=second.get(name)) for name, one in run.outcomes.items()}
    board = replace(board, runs={**board.runs, key: replace(run, outcomes=outcomes, tried=2)})
    row = counts.table(board.partition, board.runs)["sig-node", "Feature:Mirrors"]
    assert (row.passed["nodewright"], row.failed["nodewright"], row.flaky["nodewright"]) == (3, 1, 1)
    assert row.only_ours == 0
    text = page.page(board)
    listed = text.split("## What passed at the second try only")[1].split("##")[0]
    assert f"| {NAMES['ours']} | flaky: passed at 2nd try | passed |" in listed and NAMES["both"] not in listed
    assert "3 passed, 1 failed, 2 skipped, 1 flaky" in text
    assert document.read(document.write(board), {}) == board
