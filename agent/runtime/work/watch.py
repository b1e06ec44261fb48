"""Whether the container runtime is ready, for the Node's status and for what may not start without it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.runtime.model import RuntimeFacts
from agent.runtime.plan import DOWN_AFTER, runtime_facts, runtime_silent
from agent.runtime.ports import RuntimeService
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

_POLL = 5.0  # seconds
_UNREADY_POLL = 0.25
# A runtime that hangs accepts calls and never answers, and is down when it should be; one that is slow is not.
_LIMIT = DOWN_AFTER - _POLL


class RuntimeWatch:
    """`facts`: the newest answer; `answered` is set after the first one.

    `changed()` is called when the answer differs from the one before.
    """

    def __init__(self, runtime: RuntimeService, clock: Clock, changed: Callable[[], None]) -> None:
        self.facts, self.answered = RuntimeFacts(), asyncio.Event()
        self._runtime, self._clock, self._changed = runtime, clock, changed
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
        try:
            fresh = await self._answer()
        except (NodewrightError, TimeoutError) as failure:
            error = str(failure) if isinstance(failure, NodewrightError) else f"no answer in {_LIMIT:g} s"
            self._version = {}
            silence = None if self._last is None else self._clock.monotonic() - self._last
            return runtime_silent(self.facts, silence, error)
        self._last = self._clock.monotonic()
        self.answered.set()
        return fresh

    async def _answer(self) -> RuntimeFacts:
        """Raises NodewrightError, and TimeoutError when there is none in time."""
        call, limit = asyncio.ensure_future(self._call()), asyncio.ensure_future(self._clock.sleep(_LIMIT))
        try:
            await asyncio.wait({call, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not call.done():
                raise TimeoutError
            return call.result()
        finally:
            await cancel_and_wait(call, limit)

    async def _call(self) -> RuntimeFacts:
        status = await self._runtime.status()
        self._version = self._version or await self._runtime.version()
        return runtime_facts(status, self._version)
