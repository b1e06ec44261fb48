"""Runs what is left of the scoreboard, a part after the other, and keeps what came of each."""

from __future__ import annotations

import asyncio
import tempfile
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import KUBERNETES_VERSION
from controlplane.cluster.work.down import down
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Progress
from controlplane.scoreboard.edge import machine as this_machine
from controlplane.scoreboard.edge import store
from controlplane.scoreboard.model import Run, Spec, Step
from controlplane.scoreboard.plan import clusters, reports, results
from controlplane.scoreboard.plan.document import Board
from controlplane.scoreboard.plan.partition import partition
from controlplane.scoreboard.plan.schedule import Estimate, ordered
from controlplane.scoreboard.work.order import Order
from controlplane.scoreboard.work.pages import read_explanations, read_pages, write_pages
from controlplane.scoreboard.work.parts import Defect, run_step
from controlplane.suites.work.results import make_folder
from nodelib.clock import Clock
from nodelib.command import run as run_command
from nodelib.durations import span
from nodelib.errors import Invalid
from nodelib.text import counted

_LISTS_WITHIN = 120.0  # seconds

Displays = Callable[[], AbstractContextManager[Progress]]


async def look(order: Order, progress: Progress) -> tuple[Board, tuple[Step, ...]]:
    """The board as it is, and what `order` would run, in this order. Raises NodewrightError.

    What the pages have from elsewhere is not run here again: a fresh checkout goes on where its commit was.
    """
    make_folder(order.root)
    published = await asyncio.to_thread(read_pages, order.pages)
    specs = await _list(order, progress)
    machine = await asyncio.to_thread(this_machine.read)
    others = [spec for spec in (published.partition.specs if published else ()) if spec.program not in order.programs]
    divided = partition([*specs, *others], machine.abilities)
    kept = await asyncio.to_thread(store.load, order.root)
    known = [*(published.runs.values() if published else ()), *kept]
    board = Board(
        KUBERNETES_VERSION,
        machine,
        divided,
        results.gather(known, divided.parts, KUBERNETES_VERSION),
        read_explanations(),
    )
    chosen = [part for part in clusters.named(divided, order.parts) if part.specs[0].program in order.programs]
    new, behind = results.left(chosen, board.runs, again=order.again)
    return board, (*ordered(new, Estimate(divided, board.runs)), *behind)


async def run(order: Order, displays: Displays, clock: Clock, say: Callable[[str], None]) -> Board:
    """Run what is left; `say` gets a line for each part. A part that cannot run is a result, too.

    Raises Conflict beside another run, and Invalid where a cluster of that name is somebody's own; in the end, the
    first Defect.
    """
    make_folder(order.root)
    with directory_lock(str(order.root), holder="run of the scoreboard"):
        with displays() as progress:
            board, left = await look(order, progress)
        await asyncio.to_thread(write_pages, order.pages, board)
        queue, began, done = deque(left), clock.monotonic(), 0
        defects: list[Defect] = []
        while queue and (not order.minutes or clock.monotonic() - began < order.minutes * 60):
            step = queue.popleft()
            done += 1
            say(_line(board, step, queue, done))
            with displays() as progress:
                await _remove_own(order, progress)
                try:
                    made = await run_step(order, step, board.machine, progress, clock)
                except Defect as error:
                    defects.append(error)
                    made = error.made
            board, added = _with(board, step, made)
            queue.extendleft(added)
            await asyncio.to_thread(store.save, order.root, board.runs[step.part.name, step.maker])
            await asyncio.to_thread(write_pages, order.pages, board)
        if queue:
            say(f"{order.minutes} minutes are over; left: {counted(len(queue), 'run')}")
        if defects:
            raise defects[0]
        return board


def _line(board: Board, step: Step, queue: Iterable[Step], number: int) -> str:
    steps = (step, *queue)
    specs = counted(len(step.part.specs), "spec")
    what = f"{specs} again, alone" if step.second else specs
    left = span(Estimate(board.partition, board.runs).total(steps))
    return f"{number} of {number + len(steps) - 1}: {step.part.name}, {what}, {step.maker}; about {left} left"


def _with(board: Board, step: Step, made: Run) -> tuple[Board, tuple[Step, ...]]:
    """The board with what came of a step, and the second tries that it asks for."""
    key = step.part.name, step.maker
    if step.second:
        return replace(board, runs={**board.runs, key: results.with_second(board.runs[key], made)}), ()
    parts = board.partition.parts
    runs = results.gather([*board.runs.values(), made], parts, KUBERNETES_VERSION)
    whole = next(part for part in parts if part.name == step.part.name)
    return replace(board, runs=runs), results.second_tries(whole, runs[key]) if made.outcomes else ()


async def _list(order: Order, progress: Progress) -> tuple[Spec, ...]:
    from controlplane.binaries.work import ensure_in_thread

    with progress.step("list of all specs") as say:
        found = await ensure_in_thread(
            order.programs, cache_dir=Path(cache_root()), progress=say, binaries_dir=order.binaries_dir
        )
        specs: list[Spec] = []
        for program in order.programs:
            with tempfile.TemporaryDirectory() as folder:
                report = Path(folder, program)
                argv = reports.listing(program, str(found.path(program)), str(report))
                await run_command(argv, timeout=_LISTS_WITHIN, cwd=folder)  # e2e_node.test makes a folder there
                specs += reports.read_listing(program, await asyncio.to_thread(report.read_text, encoding="utf-8"))
        say(f"{len(specs)} specs")
    return tuple(specs)


async def _remove_own(order: Order, progress: Progress) -> None:
    """Remove the cluster that a run which was killed has left. Raises Invalid for one that is not the scoreboard's."""
    if not state.exists(order.name):
        return
    if not store.is_marked(order.root, order.name):
        raise Invalid(
            "a cluster of that name exists, and it is not one of the scoreboard's",
            obj=order.name,
            step="make clusters for the parts",
            action=f"Run {ours(order.name, 'down')} first, or choose another --name.",
        )
    await down(order.name, progress)
