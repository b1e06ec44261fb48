"""Keeps the table of `plan/frames.py` in the kernel as long as policies are enforced here, whoever removes it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from nodelib import command
from nodelib.clock import Clock
from nodelib.command import CommandError, Completed
from policy.plan import frames

log = logging.getLogger(__name__)

PERIOD = 60.0  # seconds between two writes: replacing a table of one rule takes milliseconds

Run = Callable[..., Awaitable[Completed]]


class Frames:
    """`on_problem` is told why frames with tags pass here, once for each cause."""

    def __init__(self, clock: Clock, on_problem: Callable[[str], None], run: Run = command.run) -> None:
        self._clock, self._on_problem, self._run = clock, on_problem, run
        self._wanted = False
        self.problem = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(PERIOD)
            if self._wanted:
                await self.enforce()

    async def enforce(self) -> None:
        """Write it, and keep it from now on. A kernel or a node that cannot have it is no reason to run no pod."""
        self._wanted = True
        problem = await self._commit(frames.transaction())
        if problem and problem != self.problem:
            self._on_problem(problem)
        self.problem = problem

    async def remove(self) -> None:
        """Policies are left to somebody else."""
        self._wanted = False
        if problem := await self._commit(frames.removal()):
            log.info("no table of bridges was removed: %s", problem)

    async def _commit(self, transaction: str) -> str:
        try:
            await self._run(("nft", "-f", "-"), stdin=transaction.encode(), timeout=60)
        except CommandError as error:
            return str(error)
        return ""
