"""Runs the steps that are left, as many at a time as the order says, and keeps what came of each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace

from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.model import KUBERNETES_VERSION
from controlplane.cluster.work.down import down
from controlplane.progress import Named, Progress
from controlplane.scoreboard.edge import store
from controlplane.scoreboard.model import Run, Step
from controlplane.scoreboard.plan import results
from controlplane.scoreboard.plan.document import Board
from controlplane.scoreboard.plan.schedule import Estimate, next_step
from controlplane.scoreboard.work.order import Order
from controlplane.scoreboard.work.pages import write_pages
from controlplane.scoreboard.work.parts import Defect, run_step
from nodelib.clock import Clock
from nodelib.durations import span
from nodelib.errors import Invalid
from nodelib.text import counted

Displays = Callable[[], AbstractContextManager[Progress]]
Say = Callable[[str], None]


class Runner:
    """One run of the scoreboard. `board` is what came of all parts until now."""

    def __init__(self, order: Order, board: Board, displays: Displays, clock: Clock, say: Say) -> None:
        self.order, self.board, self.displays, self.clock, self.say = order, board, displays, clock, say
        self.defects: list[Defect] = []
        self._waiting: list[Step] = []
        self._running: list[Step] = []
        self._begun = 0
        self._ended = asyncio.Condition()  # a step has ended
        self._writing = asyncio.Lock()

    async def run(self, steps: Iterable[Step]) -> None:
        """Run the steps, and the second tries that they ask for. Raises Invalid, see _remove()."""
        began = self.clock.monotonic()
        self._waiting = list(steps)
        with self.displays() as progress:
            for name in {*self.order.names, *store.marked(self.order.root)}:
                await self._remove(name, progress)
        try:
            async with asyncio.TaskGroup() as group:
                for name in self.order.names:
                    group.create_task(self._steps(name, began), name=f"scoreboard-{name}")
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # which has ended the others
        if self._waiting:
            self.say(f"{self.order.minutes} minutes are over; left: {counted(len(self._waiting), 'run')}")

    async def _steps(self, name: str, began: float) -> None:
        """Steps one after the other, on clusters of that name."""
        while (step := await self._next(began)) is not None:
            try:
                await self._run(name, step)
            finally:
                async with self._ended:
                    self._running.remove(step)
                    self._ended.notify_all()

    async def _next(self, began: float) -> Step | None:
        async with self._ended:
            while True:
                over = self.order.minutes and self.clock.monotonic() - began >= self.order.minutes * 60
                if over or not self._waiting:
                    return None
                step = next_step(self._waiting, self._running, self.order.at_once)
                if step is not None:
                    break
                await self._ended.wait()
            self._begun += 1
            self.say(self._line(step))
            self._waiting.remove(step)
            self._running.append(step)
            return step

    def _line(self, step: Step) -> str:
        specs = counted(len(step.part.specs), "spec")
        what = f"{specs} again, alone" if step.second else specs
        seconds = Estimate(self.board.partition, self.board.runs).total(self._waiting) / self.order.at_once
        number = f"{self._begun} of {self._begun + len(self._waiting) - 1}"
        return f"{number}: {step.part.name}, {what}, {step.maker}; about {span(seconds)} left"

    async def _run(self, name: str, step: Step) -> None:
        with self.displays() as display:
            several = self.order.at_once > 1
            progress = Named(display, f"{step.part.name}, {step.maker}") if several else display
            await self._remove(name, progress)
            try:
                made = await run_step(self.order, name, step, self.board.machine, progress, self.clock)
            except Defect as error:
                self.defects.append(error)
                made = error.made
        async with self._writing:
            self.board, added = _with(self.board, step, made)
            self._waiting[:0] = added
            await asyncio.to_thread(store.save, self.order.root, self.board.runs[step.part.name, step.maker])
            await asyncio.to_thread(write_pages, self.order.pages, self.board)

    async def _remove(self, name: str, progress: Progress) -> None:
        """Remove the cluster that a run which was killed has left. Raises Invalid for one that is not ours."""
        if not state.exists(name):
            store.unmark(self.order.root, name)  # somebody's own may have that name next
            return
        if name not in store.marked(self.order.root):
            raise Invalid(
                "a cluster of that name exists, and it is not one of the scoreboard's",
                obj=name,
                step="make clusters for the parts",
                action=f"Run {ours(name, 'down')} first, or choose another --name.",
            )
        await down(name, progress)
        store.unmark(self.order.root, name)


def _with(board: Board, step: Step, made: Run) -> tuple[Board, tuple[Step, ...]]:
    """The board with what came of a step, and the second tries that it asks for."""
    key = step.part.name, step.maker
    if step.second:
        return replace(board, runs={**board.runs, key: results.with_second(board.runs[key], made)}), ()
    parts = board.partition.parts
    runs = results.gather([*board.runs.values(), made], parts, KUBERNETES_VERSION)
    whole = next(part for part in parts if part.name == step.part.name)
    return replace(board, runs=runs), results.second_tries(whole, runs[key]) if made.outcomes else ()
