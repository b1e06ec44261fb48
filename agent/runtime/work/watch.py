"""Whether the container runtime is ready, for the Node's status and for what may not start without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.runtime.model import RuntimeFacts
from agent.runtime.plan import runtime_facts, runtime_silent
from agent.runtime.ports import RuntimeService
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

log = logging.getLogger(__name__)

_POLL = 5.0  # seconds
_UNREADY_POLL = 0.25


class RuntimeWatch:
    """`facts`: the newest answer; `answered` is set after the first one. `limit`: seconds that an answer may take.

    `changed()` is called when the answer differs from the one before.
    """

    def __init__(self, runtime: RuntimeService, clock: Clock, limit: float, changed: Callable[[], None]) -> None:
        self.facts, self.answered = RuntimeFacts(), asyncio.Event()
        self._runtime, self._clock, self._limit, self._changed = runtime, clock, limit, changed
        self._version: Json = {}
        self._last: float | None = None

    async def run(self) -> None:
        """Until cancelled: ask every 5 s, four times a second while it is not ready (CRI has no event for that)."""
        while True:
            fresh = await self._ask()
            if fresh != self.facts:
                self.facts = fresh
                if fresh.problems:
                    log.warning("not ready: %s", "; ".join(fresh.problems))
                self._changed()
            await self._clock.sleep(_UNREADY_POLL if fresh.problems else _POLL)

    async def _ask(self) -> RuntimeFacts:
        now = self._clock.monotonic()
        try:
            # A runtime that hangs accepts calls and never answers: without a limit that would go unnoticed for minutes.
            async with asyncio.timeout(self._limit):
                status = await self._runtime.status()
                self._version = self._version or await self._runtime.version()
            fresh = runtime_facts(status, self._version)
        except (NodewrightError, TimeoutError) as failure:
            error = str(failure) if isinstance(failure, NodewrightError) else f"no answer in {self._limit:g} s"
            self._version = {}
            return runtime_silent(self.facts, None if self._last is None else now - self._last, error)
        self._last = now
        self.answered.set()
        return fresh
