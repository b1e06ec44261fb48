"""Level-triggered work at a bounded frequency.

Same contract as upstream's pkg/proxy/runner: calls are coalesced, at least `min_interval`
apart, tried again `retry_interval` after a failure, and made every `max_interval` without
a poke (the audit).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)


class BoundedFrequencyRunner:
    """Runs `fn` after poke(); all intervals in seconds.

    With `rest_factor` a run is followed by a rest of so many times its own length, `longest_rest` at most: what
    costs little runs often, what costs much is batched. A first poke after a rest runs at once.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[[], Awaitable[None]],
        *,
        min_interval: float,
        retry_interval: float,
        max_interval: float,
        clock: Clock,
        rest_factor: float = 0.0,
        longest_rest: float = 1.0,
    ) -> None:
        self.name = name
        self._fn = fn
        self._min, self._retry, self._max = min_interval, retry_interval, max_interval
        self._clock = clock
        self._rest_factor, self._longest_rest = rest_factor, longest_rest
        self._poked = asyncio.Event()

    def poke(self) -> None:
        """Ask for a run soon; any number of pokes before it make one run."""
        self._poked.set()

    async def run(self) -> None:
        """Until cancelled. A failing `fn` is logged and tried again; it never ends the loop."""
        wait = self._max
        while True:
            await at_most(self._clock, wait, self._poked)
            self._poked.clear()
            started = self._clock.monotonic()
            wait = self._max
            try:
                await self._fn()
            except Exception as error:
                log.error("%s: %s; next try in %g s", self.name, error, self._retry, exc_info=_unexpected(error))
                wait = self._retry
            took = self._clock.monotonic() - started
            rest = max(self._min - took, min(self._rest_factor * took, self._longest_rest))
            if rest > 0:
                await self._clock.sleep(rest)


def _unexpected(error: Exception) -> bool:
    return not isinstance(error, NodewrightError)
