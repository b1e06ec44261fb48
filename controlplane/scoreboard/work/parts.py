"""Runs one part, or what failed of it once more, with one maker's kubelet and proxy."""

from __future__ import annotations

import asyncio
import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Coroutine, Mapping
from typing import Any

from controlplane.cluster.edge import state
from controlplane.cluster.model import KUBERNETES_VERSION
from controlplane.cluster.work.down import down
from controlplane.progress import Progress
from controlplane.scoreboard.edge import store
from controlplane.scoreboard.model import Machine, Outcome, Program, Run, Step
from controlplane.scoreboard.plan import clusters, reports
from controlplane.scoreboard.work.order import Order
from controlplane.suites.plan.node_suite import Setup
from controlplane.suites.work import conformance, node_suite
from controlplane.suites.work.results import make_folder
from controlplane.up.request import Request
from controlplane.up.work import up
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.kube.times import format_rfc3339
from nodelib.text import counted

_AROUND = 20  # minutes that a cluster may take to come and go, beside the tests


async def run_step(order: Order, name: str, step: Step, machine: Machine, progress: Progress, clock: Clock) -> Run:
    """What came of it, on a cluster of that name. A defect of ours is a Defect, with a run in which no spec ran."""
    running = _Running(order, name, step, machine, progress, clock)
    began, date = clock.monotonic(), format_rfc3339(clock.now())
    try:
        problem = await running.run()
        return await asyncio.to_thread(running.read, problem, date, clock.monotonic() - began)
    except Exception as error:
        made = running.record(f"a defect of ours: {error!r}"[:300], date, clock.monotonic() - began, {})
        raise Defect(made) from error


class Defect(Exception):
    """Ours, and not of what was tested. The other parts are run all the same."""

    def __init__(self, made: Run) -> None:
        super().__init__(made.problem)
        self.made = made


class _Running:
    def __init__(self, order: Order, name: str, step: Step, machine: Machine, progress: Progress, clock: Clock) -> None:
        self.order, self.name, self.part, self.maker, self.machine = order, name, step.part, step.maker, machine
        self.progress, self.clock = progress, clock
        self.folder = store.folder(order.root, step.part.name, step.maker, second=step.second)
        self.program = step.part.specs[0].program
        self.beside = step.beside and order.at_once > 1
        self.procs = 1 if step.second else min(step.part.group.procs, order.procs)

    async def run(self) -> str:
        """Why it was not run to its end, or ""."""
        make_folder(self.folder)
        await asyncio.to_thread(conformance.clear_reports, self.folder)
        problem = ""
        limit = asyncio.timeout((self.part.group.minutes + _AROUND) * 60)
        try:
            store.mark(self.order.root, self.name)
            async with limit:
                await (self._e2e() if self.program is Program.E2E else self._node())
        except (NodewrightError, OSError, ExceptionGroup) as error:
            expired = f"ended after {self.part.group.minutes + _AROUND} minutes"
            problem = expired if limit.expired() else _sentence(error)
        finally:
            if not state.exists(self.name):
                store.unmark(self.order.root, self.name)
        return problem

    async def _e2e(self) -> None:
        order, group = self.order, self.part.group
        request = Request(
            self.name,
            clusters.options_of(group, self.maker),
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
                    procs=self.procs,
                    results=self.folder,
                    binaries_dir=order.binaries_dir,
                    timeout=f"{group.minutes}m",
                ),
                self.progress,
            )
        finally:
            await down(self.name, self.progress)

    async def _node(self) -> None:
        order, group = self.order, self.part.group
        await node_suite.run(
            node_suite.NodeOrder(
                name=self.name,
                agent=self.maker,
                focus=reports.focus(self.part.specs),
                procs=self.procs,
                setup=Setup(group.setup),
                results=self.folder,
                binaries_dir=order.binaries_dir,
                project=order.project,
                python=order.python,
                timeout=f"{group.minutes}m",
                beside=self.beside,
            ),
            self.progress,
            self.clock,
        )

    def read(self, problem: str, date: str, seconds: float) -> Run:
        """The run, by the suite's reports."""
        outcomes: dict[str, Outcome] = {}
        for path in sorted(self.folder.glob("junit*.xml")):
            try:
                found, failed = reports.read_report(store.report(path), self.part.specs)
            except (ElementTree.ParseError, ValueError) as error:
                problem = problem or f"{path.name} cannot be read: {error}"
                continue
            outcomes |= found
            problem = problem or failed
        return self.record(problem or ("" if outcomes else "no test ran"), date, seconds, outcomes)

    def record(self, problem: str, date: str, seconds: float, outcomes: Mapping[str, Outcome]) -> Run:
        """The run with these outcomes."""
        missed = tuple(spec.name for spec in self.part.specs if outcomes and spec.name not in outcomes)
        if missed:
            problem = problem or f"not reached: {counted(len(missed), 'spec')}"
        return Run(
            part=self.part.name,
            maker=self.maker,
            program=self.program,
            kubernetes=KUBERNETES_VERSION,
            commit=self.order.commit,
            date=date,
            machine=self.machine.text,
            seconds=round(seconds, 1),
            outcomes=outcomes,
            missed=missed,
            problem=problem,
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
