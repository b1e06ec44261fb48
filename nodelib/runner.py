"""Runs level-triggered work at a bounded frequency.

Same contract as upstream's pkg/proxy/runner/bounded_frequency_runner.go: pokes are coalesced; runs are at least
`min_interval` apart, repeated `retry_interval` after a failure, and made every `max_interval` without a poke.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)


class BoundedFrequencyRunner:
    """Runs `fn` after poke(). All intervals are in seconds.

    With `rest_factor`, a run is followed by a rest of that many times its duration, at most `longest_rest`: short runs
    are frequent, long ones are batched. The first poke after a rest runs at once.
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
        """Ask for a run soon. Any number of pokes before it lead to one run."""
        self._poked.set()

    async def run(self) -> None:
        """Until cancelled. When `fn` fails, the error is logged and it runs again later."""
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
