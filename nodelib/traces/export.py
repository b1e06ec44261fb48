"""The queue before a collector: spans go in without waiting and leave in batches.

As upstream's batch span processor (go.opentelemetry.io/otel/sdk/trace), with its bounds: 2,048 spans wait at most, and
512 leave at a time. They wait for others twice as long, unless the environment says otherwise: a request of gRPC costs
as much as what else is done for fifty spans, which is a pod's. What a slow or dead collector does not take is dropped
and counted; nobody ever waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Protocol

from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json
from nodelib.traces import otlp
from nodelib.traces.model import Span

log = logging.getLogger(__name__)

MOST = 2048  # spans that wait
BATCH = 512  # spans of one request
_SLICE = 64  # spans that are encoded without giving way to others
DELAY = 10.0  # seconds that a span waits for others
_TRIES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds between two tries


class Sender(Protocol):
    """The connection to a collector (senders.py)."""

    async def send(self, parts: Iterable[Json]) -> int: ...

    async def close(self) -> None: ...


class Exporter:
    """`connect()` makes the connection, when there is something to send for the first time. `exported(n)` and
    `dropped(reason, n)` count spans; the reasons are "queue_full", "not_sent", "rejected" and "shutdown". `delay`: for
    how many seconds a span waits for others."""

    def __init__(
        self,
        connect: Callable[[], Sender],
        resource: Mapping[str, str | int],
        clock: Clock,
        exported: Callable[[int], None] = lambda count: None,
        dropped: Callable[[str, int], None] = lambda reason, count: None,
        delay: float = DELAY,
    ) -> None:
        self._connect, self._resource, self._clock, self._delay = connect, dict(resource), clock, delay
        self._exported, self._dropped = exported, dropped
        self._waiting = deque[Callable[[], Span]]()
        self._under_way = 0  # spans of the request that is being sent
        self._some, self._many = asyncio.Event(), asyncio.Event()
        self._sender: Sender | None = None
        self._pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0.2)
        self._problem = ""

    @property
    def waiting(self) -> int:
        """Spans that are not sent yet."""
        return len(self._waiting) + self._under_way

    def add(self, span: Span) -> None:
        """Send this span soon. Never blocks; beyond MOST spans, it is dropped."""
        self.add_later(lambda: span)

    def add_later(self, make: Callable[[], Span]) -> None:
        """As add(), for a span that is made when it is sent; `make` may be called for each try."""
        if len(self._waiting) >= MOST:
            self._dropped("queue_full", 1)
            return
        self._waiting.append(make)
        if len(self._waiting) == 1:
            self._some.set()
        if len(self._waiting) >= BATCH:
            self._many.set()

    async def run(self) -> None:
        """Until cancelled: send what waits."""
        while True:
            await self._some.wait()
            await at_most(self._clock, self._delay, self._many)
            await self._send_batch()

    async def close(self, limit: float) -> None:
        """After run() has ended: try once to send what waits, for at most `limit` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                while self._waiting and await self._try(self._take()):
                    pass
        if left := self.waiting:
            self._waiting.clear()
            self._under_way = 0
            self._dropped("shutdown", left)
            log.warning("%d spans were not sent before the end%s", left, f": {self._problem}" if self._problem else "")
        if self._sender is not None:
            await self._sender.close()

    async def _send_batch(self) -> None:
        batch = self._take()
        try:
            for number in range(1, _TRIES + 1):
                if await self._try(batch):
                    return
                if number < _TRIES:
                    await self._clock.sleep(self._pause.next())
            self._dropped("not_sent", len(batch))
            self._under_way = 0
        except asyncio.CancelledError:
            if self._under_way:
                self._waiting.extendleft(reversed(batch))
                self._under_way = 0
            raise

    def _take(self) -> list[Callable[[], Span]]:
        batch = [self._waiting.popleft() for _ in range(min(BATCH, len(self._waiting)))]
        self._under_way = len(batch)
        if len(self._waiting) < BATCH:
            self._many.clear()
        if not self._waiting:
            self._some.clear()
        return batch

    async def _try(self, batch: list[Callable[[], Span]]) -> bool:
        """True: this batch is done with, taken or refused. False: worth another try."""
        rejected = 0
        try:
            if self._sender is None:
                self._sender = self._connect()
            slices = (batch[at : at + _SLICE] for at in range(0, len(batch), _SLICE))
            parts = (otlp.message(self._resource, (make() for make in one)) for one in slices)
            rejected = min(len(batch), await self._sender.send(parts))
            self._note("")
        except NodewrightError as error:
            self._note(str(error))
            if not isinstance(error, Permanent):
                return False
            rejected = len(batch)
        except Exception:
            log.exception("%d spans cannot be sent, and are dropped", len(batch))
            rejected = len(batch)
        else:
            self._pause.reset()
        self._under_way = 0
        if rejected < len(batch):
            self._exported(len(batch) - rejected)
        if rejected:
            self._dropped("rejected", rejected)
        return True

    def _note(self, problem: str) -> None:
        """Into the log when it is new: a collector that is down stays down for long."""
        if bool(problem) != bool(self._problem):
            if problem:
                log.warning("%s; spans wait, and are dropped when %d do", problem, MOST)
            else:
                log.info("spans are exported again")
        self._problem = problem
