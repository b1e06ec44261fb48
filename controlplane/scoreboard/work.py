"""Runs what is left of the scoreboard, a part after the other, and keeps what came of each."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import KUBERNETES_VERSION
from controlplane.cluster.work.down import down
from controlplane.machine.edge import files
from controlplane.machine.edge.locks import directory_lock
from controlplane.progress import Progress
from controlplane.scoreboard.edge import machine as this_machine
from controlplane.scoreboard.edge import store
from controlplane.scoreboard.model import Machine, Outcome, Part, Program, Run, Spec
from controlplane.scoreboard.plan import clusters, document, explanations, page, reports
from controlplane.scoreboard.plan.document import Board
from controlplane.scoreboard.plan.partition import partition
from controlplane.suites.plan.node_suite import Setup
from controlplane.suites.work import conformance, node_suite
from controlplane.suites.work.results import make_folder
from controlplane.up.work import Request, up
from nodelib.clock import Clock
from nodelib.command import run as run_command
from nodelib.errors import Invalid, NodewrightError
from nodelib.kube.times import format_rfc3339
from nodelib.text import counted

_AROUND = 20  # minutes that a cluster may take to come and go, beside the tests
_LISTS_WITHIN = 120.0  # seconds
_EXPLANATIONS = Path(__file__).with_name("explanations.txt")

Displays = Callable[[], AbstractContextManager[Progress]]


@dataclass(frozen=True, slots=True)
class Order:
    """Which parts to run, where their results are, and where the pages go (nowhere if None).

    `name` is that of the clusters; `programs`: whose parts may run, the lists of others are taken from the pages;
    `again`: also parts that have a result.
    """

    name: str
    commit: str
    project: str
    python: str
    programs: tuple[Program, ...] = tuple(Program)
    parts: str = ""
    again: bool = False
    procs: int = 4
    results: Path | None = None
    pages: Path | None = None
    binaries_dir: Path | None = None

    @property
    def root(self) -> Path:
        return self.results or Path(cache_root(), "scoreboard")


async def look(order: Order, progress: Progress) -> tuple[Board, tuple[tuple[Part, str], ...]]:
    """The board as it is, and which parts `order` would run, each with the maker. Raises NodewrightError."""
    make_folder(order.root)
    published = await asyncio.to_thread(read_pages, order.pages)
    specs = await _list(order, progress)
    machine = await asyncio.to_thread(this_machine.read)
    others = [spec for spec in (published.partition.specs if published else ()) if spec.program not in order.programs]
    divided = partition([*specs, *others], machine.abilities)
    kept = await asyncio.to_thread(store.load, order.root, divided.parts)
    own = clusters.current(kept, divided.parts, KUBERNETES_VERSION)
    chosen = [part for part in clusters.named(divided, order.parts) if part.specs[0].program in order.programs]
    left = clusters.left(chosen, {} if order.again else own)
    runs = clusters.current(published.runs, divided.parts, KUBERNETES_VERSION) if published else {}
    return Board(KUBERNETES_VERSION, machine, divided, {**runs, **own}, read_explanations()), left


async def run(order: Order, displays: Displays, clock: Clock, say: Callable[[str], None]) -> Board:
    """Run what is left; `say` gets a line for each part. A part that cannot run is a result, too.

    Raises Conflict beside another run, and Invalid where a cluster of that name is somebody's own.
    """
    make_folder(order.root)
    with directory_lock(str(order.root), holder="run of the scoreboard"):
        with displays() as progress:
            board, left = await look(order, progress)
        for number, (part, maker) in enumerate(left, 1):
            say(f"{number} of {len(left)}: {part.name}, {len(part.specs)} specs, {maker}")
            with displays() as progress:
                await _remove_own(order, progress)
                made = await _Running(order, part, maker, board.machine, progress, clock).run()
            await asyncio.to_thread(store.save, order.root, made)
            board = replace(board, runs={**board.runs, (part.name, maker): made})
            await asyncio.to_thread(write_pages, order.pages, board)
        if not left:
            await asyncio.to_thread(write_pages, order.pages, board)
        return board


def read_pages(pages: Path | None) -> Board | None:
    """The scoreboard as it was published, with results of other machines, too. Raises Invalid for what is none."""
    path = pages / "scoreboard.json" if pages else None
    if path is None or not path.exists():
        return None
    return document.read(store.report(path), read_explanations())


def read_explanations() -> Mapping[str, str]:
    """Raises Invalid for a line that is none."""
    return explanations.read(_EXPLANATIONS.read_text(encoding="utf-8"))


def write_pages(pages: Path | None, board: Board) -> None:
    """Write scoreboard.md and scoreboard.json."""
    if pages is not None:
        files.write(str(pages / "scoreboard.json"), document.write(board), 0o644)
        files.write(str(pages / "scoreboard.md"), page.page(board), 0o644)


async def _list(order: Order, progress: Progress) -> tuple[Spec, ...]:
    from controlplane.binaries.work import ensure

    with progress.step("list of all specs") as say:
        found = await asyncio.to_thread(
            ensure, order.programs, cache_dir=Path(cache_root()), progress=say, binaries_dir=order.binaries_dir
        )
        specs: list[Spec] = []
        with tempfile.TemporaryDirectory() as folder:
            for program in order.programs:
                report = Path(folder, program)
                argv = reports.listing(program, str(found.path(program)), str(report))
                await run_command(argv, timeout=_LISTS_WITHIN)
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


class _Running:
    """One part with one maker."""

    def __init__(
        self, order: Order, part: Part, maker: str, machine: Machine, progress: Progress, clock: Clock
    ) -> None:
        self.order, self.part, self.maker, self.machine = order, part, maker, machine
        self.progress, self.clock = progress, clock
        self.folder = store.folder(order.root, part.name, maker)
        self.program = part.specs[0].program

    async def run(self) -> Run:
        make_folder(self.folder)
        await asyncio.to_thread(store.forget, self.order.root, self.part.name, self.maker)
        await asyncio.to_thread(conformance.clear_reports, self.folder)
        began, date = self.clock.monotonic(), format_rfc3339(self.clock.now())
        problem = ""
        limit = asyncio.timeout((self.part.group.minutes + _AROUND) * 60)
        try:
            store.mark(self.order.root, self.order.name)
            async with limit:
                await (self._e2e() if self.program is Program.E2E else self._node())
        except (NodewrightError, OSError, ExceptionGroup) as error:
            expired = f"ended after {self.part.group.minutes + _AROUND} minutes"
            problem = expired if limit.expired() else _sentence(error)
        finally:
            if not state.exists(self.order.name):
                store.unmark(self.order.root)
        return await asyncio.to_thread(self._read, problem, date, self.clock.monotonic() - began)

    async def _e2e(self) -> None:
        order, group = self.order, self.part.group
        options = clusters.options_of(group, self.maker)
        request = Request(
            order.name,
            options,
            frozenset(),
            binaries_dir=order.binaries_dir,
            images="conformance",
            project=order.project,
            python=order.python,
            environment=os.environ,
        )
        try:
            raised = await _to_its_end(up(request, self.progress, self.clock))
            await conformance.run(
                raised.cluster,
                conformance.Order(
                    "full",
                    focus=reports.focus(self.part.specs),
                    procs=min(group.procs, order.procs),
                    results=self.folder,
                    binaries_dir=order.binaries_dir,
                    timeout=f"{group.minutes}m",
                ),
                self.progress,
            )
        finally:
            await down(order.name, self.progress)

    async def _node(self) -> None:
        order, group = self.order, self.part.group
        await node_suite.run(
            node_suite.NodeOrder(
                name=order.name,
                agent=self.maker,
                focus=reports.focus(self.part.specs),
                procs=min(group.procs, order.procs),
                setup=Setup(group.setup),
                results=self.folder,
                binaries_dir=order.binaries_dir,
                project=order.project,
                python=order.python,
                timeout=f"{group.minutes}m",
            ),
            self.progress,
            self.clock,
        )

    def _read(self, problem: str, date: str, seconds: float) -> Run:
        outcomes: dict[str, Outcome] = {}
        for path in sorted(self.folder.glob("junit*.xml")):
            try:
                found, failed = reports.read_report(store.report(path), self.part.specs)
            except (ElementTree.ParseError, ValueError) as error:
                problem = problem or f"{path.name} cannot be read: {error}"
                continue
            outcomes |= found
            problem = problem or failed
        if outcomes and len(outcomes) < len(self.part.specs):
            problem = problem or f"not reached: {counted(len(self.part.specs) - len(outcomes), 'spec')}"
        return Run(
            part=self.part.name,
            maker=self.maker,
            digest=clusters.digest(self.part),
            kubernetes=KUBERNETES_VERSION,
            commit=self.order.commit,
            date=date,
            machine=self.machine.text,
            seconds=round(seconds, 1),
            outcomes=outcomes,
            problem=problem or ("" if outcomes else "no test ran"),
        )


async def _to_its_end(raising: Coroutine[Any, Any, Any]) -> Any:
    """Let a cancellation wait for `up`: its threads would go on making what is being removed already."""
    task = asyncio.ensure_future(raising)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task}, timeout=_AROUND * 60)
        task.cancel()
        raise


def _sentence(error: Exception) -> str:
    """The error, or the first of a group, as one line. Raises what is a defect of ours."""
    first: BaseException = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if not isinstance(first, NodewrightError | OSError):
        raise error
    if not isinstance(first, NodewrightError):
        return str(first)
    text = ": ".join(word for word in (first.obj, first.step, first.message) if word)
    return re.sub(r"\s+", " ", text)[:300]
