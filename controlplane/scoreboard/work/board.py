"""The scoreboard as it is, what is left of it, and a run of that."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import KUBERNETES_VERSION
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Progress
from controlplane.scoreboard.edge import machine as this_machine
from controlplane.scoreboard.edge import store
from controlplane.scoreboard.model import Spec, Step
from controlplane.scoreboard.plan import clusters, reports, results
from controlplane.scoreboard.plan.document import Board
from controlplane.scoreboard.plan.partition import partition
from controlplane.scoreboard.plan.schedule import Estimate, ordered
from controlplane.scoreboard.work.order import Order
from controlplane.scoreboard.work.pages import read_explanations, read_pages, write_pages
from controlplane.scoreboard.work.runner import Displays, Runner, Say
from controlplane.suites.work.results import make_folder
from nodelib.clock import Clock
from nodelib.command import run as run_command

_LISTS_WITHIN = 120.0  # seconds


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


async def run(order: Order, displays: Displays, clock: Clock, say: Say) -> Board:
    """Run what is left; `say` gets a line for each part. A part that cannot run is a result, too.

    Raises Conflict beside another run, and Invalid where a cluster of that name is somebody's own; in the end, the
    first Defect.
    """
    make_folder(order.root)
    with directory_lock(str(order.root), holder="run of the scoreboard"):
        with displays() as progress:
            board, left = await look(order, progress)
        await asyncio.to_thread(write_pages, order.pages, board)
        runner = Runner(order, board, displays, clock, say)
        await runner.run(left)
        if runner.defects:
            raise runner.defects[0]
        return runner.board


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
