"""The scoreboard for people: docs/scoreboard.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from controlplane.scoreboard.model import MAKERS, Part, Program
from controlplane.scoreboard.plan import counts
from controlplane.scoreboard.plan.document import Board
from nodelib.text import counted

_NOT_YET: Final = "not run yet"
_UNEXPLAINED: Final = "**not explained yet**"
_SKIPS_SHOWN = 60

_TOP = """# Scoreboard

Made by `./nodewright conformance --scoreboard`, which also writes [scoreboard.json](scoreboard.json): every spec of
upstream's suites e2e.test and e2e_node.test ({kubernetes}), with our kubelet and proxy and with upstream's, in the same
harness. It takes many hours, runs in parts, [Conformance] first, and goes on where it was interrupted. **A spec that
was not run yet counts in no other column.** What fails is run once more, alone; what passes then counts as passed, and
is listed as flaky. [node-suite.md](node-suite.md) has older runs by hand.

Machine: {machine}.
"""


def page(board: Board) -> str:
    """The page."""
    lines = [
        _TOP.format(kubernetes=board.kubernetes, machine=board.machine.text),
        *_summary(board),
        *_differences(board),
        *_both_fail(board),
        *_flaky(board),
        *_rows(board),
        *_kept_out(board),
        *_skipped(board),
        *_parts(board),
    ]
    return "\n".join(lines) + "\n"


def _summary(board: Board) -> Iterator[str]:
    yield from _head("suite", "specs", "cannot run here", "can", "run by ours", "run by upstream's", "left")
    for program in Program:
        found = [one for one in counts.both(board.partition, board.runs) if one.spec.program is program]
        out = sum(spec.program is program for _, specs in board.partition.kept_out for spec in specs)
        ours = sum(one.ours is not None for one in found)
        upstream = sum(one.upstream is not None for one in found)
        waiting = sum(_waits(one) for one in found)
        if not found:
            yield _line(program, "not listed yet", *[""] * 5)
            continue
        yield _line(program, len(found) + out, out, len(found), ours, upstream, waiting)
    yield ""


def _waits(one: counts.Both) -> bool:
    sides = {"nodewright": one.ours, "upstream": one.upstream}
    return any(sides[maker] is None for maker in one.part.group.makers)


def _differences(board: Board) -> Iterator[str]:
    everything = counts.both(board.partition, board.runs)
    found = [one for one in everything if one.differs]
    yield "## Where ours and upstream's differ\n"
    if not found:
        compared = sum(one.ours is not None and one.upstream is not None for one in everything)
        yield f"Nowhere, in the {counted(compared, 'spec')} that ran with both.\n"
        return
    yield from _head("spec", "ours", "upstream's", "why")
    for one in found:
        assert one.ours is not None and one.upstream is not None
        why = board.explanations.get(one.spec.name) or f"{_UNEXPLAINED}: {_reason(one)}"
        yield _line(one.spec.name, one.ours.text, one.upstream.text, why)
    yield ""


def _both_fail(board: Board) -> Iterator[str]:
    found = [one for one in counts.both(board.partition, board.runs) if one.both_fail]
    if not found:
        return
    yield "## What fails with both\n"
    yield from _head("spec", "with ours")
    for one in found:
        yield _line(one.spec.name, board.explanations.get(one.spec.name) or _reason(one))
    yield ""


def _flaky(board: Board) -> Iterator[str]:
    found = [one for one in counts.both(board.partition, board.runs) if one.flaky]
    if not found:
        return
    yield "## What passed at the second try only\n"
    yield from _head("spec", "ours", "upstream's", "the first time")
    for one in found:
        sides = [side.text if side is not None else _NOT_YET for side in (one.ours, one.upstream)]
        yield _line(one.spec.name, *sides, _reason(one))
    yield ""


def _reason(one: counts.Both) -> str:
    return next((side.reason for side in (one.ours, one.upstream) if side and side.reason), "")[:200]


def _rows(board: Board) -> Iterator[str]:
    yield "## By SIG and feature\n"
    yield "Ours and upstream's: passed of those that ran and did not skip themselves.\n"
    columns = ("specs", "cannot run here", _NOT_YET, "ours", "upstream's", "only ours fails", "only upstream's fails")
    yield from _head("SIG", "feature", *columns)
    rows = counts.table(board.partition, board.runs)
    for (sig, feature), row in [*rows.items(), (("all", ""), counts.total(rows.values()))]:
        sides = [_share(row.passed[maker], row.failed[maker]) for maker in MAKERS]
        yield _line(
            sig,
            feature,
            row.specs,
            row.kept_out or "",
            row.not_run or "",
            *sides,
            row.only_ours or "",
            row.only_upstream or "",
        )
    yield ""


def _share(passed: int, failed: int) -> str:
    return f"{passed} of {passed + failed}" if passed + failed else ""


def _kept_out(board: Board) -> Iterator[str]:
    yield "## What cannot run here\n"
    yield from _head("why", "specs")
    for rule, specs in board.partition.kept_out:
        yield _line(rule.reason, len(specs))
    yield ""


def _skipped(board: Board) -> Iterator[str]:
    found = counts.skips(counts.both(board.partition, board.runs))
    if not found:
        return
    yield "What ran, and found out by itself that it cannot run here:\n"
    yield from _head("why", "specs")
    for reason, count in found.most_common(_SKIPS_SHOWN):
        yield _line(reason, count)
    yield ""


def _parts(board: Board) -> Iterator[str]:
    yield "## Parts\n"
    yield "Ours and upstream's: passed, failed, skipped itself; seconds, commit, date.\n"
    yield from _head("part", "what", "specs", "ours", "upstream's")
    for part in board.partition.parts:
        sides = [_side(part, maker, board) for maker in MAKERS]
        yield _line(f"`{part.name}`", part.group.what, len(part.specs), *sides)
    yield ""
    yield from (
        f"Only ours runs {name}: {why}."
        for name, why in {part.group.name: part.group.only_ours for part in board.partition.parts}.items()
        if why
    )


def _side(part: Part, maker: str, board: Board) -> str:
    run = board.runs.get((part.name, maker))
    if maker not in part.group.makers:
        return "-"
    if run is None:
        return _NOT_YET
    verdicts = [one.final for one in run.outcomes.values()]
    flaky = sum(one.flaky for one in run.outcomes.values())
    missing = len(part.specs) - len(verdicts) - len(run.missed)
    numbers = {kind: verdicts.count(kind) for kind in ("passed", "failed", "skipped")}
    numbers |= {"flaky": flaky, "not reached": len(run.missed), _NOT_YET: missing if verdicts else 0}
    said = ", ".join(f"{count} {kind}" for kind, count in numbers.items() if count) or "nothing ran"
    elsewhere = f", on {run.machine}" if run.machine != board.machine.text else ""
    problem = f". {run.problem}" if run.problem else ""
    return f"{said}; {run.seconds:.0f} s, {run.commit}, {run.date[:10]}{elsewhere}{problem}"


def _head(*columns: str) -> Iterator[str]:
    yield _line(*columns)
    yield _line(*("---" for _ in columns))


def _line(*cells: object) -> str:
    return "| " + " | ".join(_cell(str(cell)) for cell in cells) + " |"


def _cell(text: str) -> str:
    """Text that cannot end its cell, nor be taken for a link or a tag."""
    for mark, harmless in (("|", "\\|"), ("<", "&lt;"), ("\n", " "), ("](", "] (")):
        text = text.replace(mark, harmless)
    return text
