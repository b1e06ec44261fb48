"""`nodewright conformance --scoreboard`: all of upstream's suites, ours beside upstream's, in parts."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from cli import versions
from cli.commands.conformance import until_asked_to_stop
from cli.display.steps import Display
from cli.display.terminal import new_console
from cli.errors import need_root
from cli.project import PROJECT, is_checkout
from controlplane.cluster.plan.addresses import check_name
from controlplane.scoreboard.model import MAKERS, Program, Step
from controlplane.scoreboard.plan import counts
from controlplane.scoreboard.plan.document import Board
from controlplane.scoreboard.plan.schedule import Estimate
from controlplane.scoreboard.work import board as work
from controlplane.scoreboard.work.order import Order
from nodelib.clock import SystemClock
from nodelib.durations import span
from nodelib.errors import WrongUsage

NAME = "scoreboard"  # of its clusters
_PROGRAMS = {"": tuple(Program), "e2e": (Program.E2E,), "node": (Program.NODE,)}  # by the value of --suite


def check(*, scoreboard: bool, own: Mapping[str, object], others: Mapping[str, object]) -> None:
    """Raises Invalid for options of the scoreboard without it, or of a single run with it. Both by their names."""
    given = [name for name, value in (others if scoreboard else own).items() if value]
    if given:
        one = "goes" if len(given) == 1 else "go"
        raise WrongUsage(
            f"{', '.join(given)} {one} only {'without' if scoreboard else 'with'} --scoreboard",
            obj="conformance",
            step="read the options",
            action="See `./nodewright conformance --help`.",
        )


def order_of(
    name: str,
    suite: str,
    *,
    parts: str,
    again: bool,
    minutes: int,
    procs: int,
    at_once: int,
    results: Path | None,
    binaries: Path | None,
) -> Order:
    """The order that the command line gives; the pages of a source tree are written.

    `suite`: e2e, node or "" for both. Raises Invalid for another.
    """
    if suite not in _PROGRAMS:
        raise WrongUsage(
            f"the scoreboard has e2e and node, and not {suite}",
            obj="--suite",
            step="read the options",
            action="Leave it out for both.",
        )
    order = Order(
        name=name,
        commit=versions.commit() or versions.release(),
        project=str(PROJECT),
        python=sys.executable,
        programs=_PROGRAMS[suite],
        parts=parts,
        again=again,
        minutes=minutes,
        procs=procs,
        at_once=at_once,
        results=results,
        pages=PROJECT / "docs" if is_checkout() else None,
        binaries_dir=binaries,
    )
    for one in order.names:
        check_name(one)
    return order


def run(order: Order, *, plain: bool) -> None:
    """Run what is left, and show what came of it.

    Exit status 1 if a part could not be run to its end, or only ours fails a spec.
    """
    need_root("conformance")

    def display() -> Display:
        return Display(plain=plain or order.at_once > 1 or None)  # steps of several parts are lines, and no table

    board = asyncio.run(until_asked_to_stop(work.run(order, display, SystemClock(), print)))
    console = new_console()
    show(board, console)
    found = counts.both(board.partition, board.runs)
    if any(one.only_ours_fails for one in found) or any(run.problem for run in board.runs.values()):
        raise SystemExit(1)


def list_parts(order: Order, *, plain: bool) -> None:
    """Show the parts, how much is left of each, and what cannot run here; nothing is run."""
    with Display(plain=plain or None) as display:
        board, left = asyncio.run(work.look(order, display))
    show_parts(board, left, new_console())


def show_parts(board: Board, left: tuple[Step, ...], console: Console) -> None:
    """A row for each part with what is left of it, those first that come first, and one for each reason that keeps
    specs out.
    """
    estimate = Estimate(board.partition, board.runs)
    waiting: dict[str, list[Step]] = {}
    for step in left:
        waiting.setdefault(step.part.name, []).append(step)
    parts = {part.name: part for part in board.partition.parts}
    shown = _table("PART", "SPECS", "LEFT", "ABOUT", "WHAT")
    for name in [*waiting, *(name for name in parts if name not in waiting)]:
        steps = waiting.get(name, [])
        makers = ", ".join(f"{one.maker} (2nd try)" if one.second else one.maker for one in steps)
        about = span(estimate.total(steps)) if steps else ""
        shown.add_row(name, str(len(parts[name].specs)), makers or "-", about, parts[name].group.what)
    console.print(shown)
    console.print()
    shown = _table("SPECS", "CANNOT RUN HERE BECAUSE")
    for rule, specs in board.partition.kept_out:
        shown.add_row(str(len(specs)), f"it {rule.reason}" if rule.reason.startswith("needs") else rule.reason)
    console.print(shown)
    listed = Counter(spec.program for spec in board.partition.specs)
    out = sum(len(specs) for _, specs in board.partition.kept_out)
    suites = ", ".join(f"{count} of {program}" for program, count in listed.items())
    console.print(
        f"\n{listed.total()} specs ({suites}): {listed.total() - out} can run here, {out} cannot."
        f" {len(board.partition.parts)} parts, {len(left)} runs left, about {span(estimate.total(left))}."
    )


def show(board: Board, console: Console) -> None:
    """A row for each SIG, and where the makers differ."""
    rows: dict[str, list[counts.Row]] = {}
    for (sig, _), row in counts.table(board.partition, board.runs).items():
        rows.setdefault(sig, []).append(row)
    shown = _table("SIG", "SPECS", "CANNOT RUN HERE", "NOT RUN YET", "OURS", "UPSTREAM'S", "ONLY OURS FAILS")
    for sig, parts in rows.items():
        row = counts.total(parts)
        sides = [f"{row.passed[maker]} of {row.passed[maker] + row.failed[maker]}" for maker in MAKERS]
        shown.add_row(sig, str(row.specs), str(row.kept_out), str(row.not_run), *sides, str(row.only_ours))
    console.print(shown)
    for one in counts.both(board.partition, board.runs):
        if one.differs and one.ours is not None and one.upstream is not None:
            console.print(f"\nours {one.ours.text}, upstream's {one.upstream.text}: {one.spec.name}", markup=False)
            reason = one.ours.reason or one.upstream.reason
            said = board.explanations.get(one.spec.name) or f"not explained yet: {reason}"
            console.print(f"  {said}", markup=False)
    for (part, maker), made in board.runs.items():
        if made.problem:
            console.print(f"\n{part}, {maker}: {made.problem}", markup=False)


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for column in columns:
        table.add_column(column)
    return table
