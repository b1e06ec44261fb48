"""Listens to the answers that our rule holds, and lets them go: a socket, bounded in how fast it is read."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from nodelib.clock import Clock
from nodelib.netlink import netfilter, nfqueue
from nodelib.netlink.listener import Listener, datagrams, readable
from nodelib.netlink.nfqueue import Held

log = logging.getLogger(__name__)

_WAITING = 1024  # answers that the kernel holds; further ones pass unread
_BUFFER = 1 << 20
_AT_ONCE = 32  # datagrams of one turn
_PAUSE = 0.005  # seconds after a full turn: a flood does not take the loop from everybody else

Learn = Callable[[bytes], Coroutine[Any, Any, None] | None]


class HeldAnswers:
    """The listener of one queue. `counted` is called for each answer."""

    def __init__(
        self,
        queue: int,
        clock: Clock,
        counted: Callable[[], None] = lambda: None,
        *,
        connect: Callable[[], socket.socket] = netfilter.connect,
    ) -> None:
        self._queue, self._clock, self._counted = queue, clock, counted
        self._waiting: set[asyncio.Task[None]] = set()
        requests = nfqueue.binding(queue, most=_WAITING)
        self._listener = Listener(f"NFQUEUE {queue}", requests, _BUFFER, clock, connect)

    @property
    def problem(self) -> str:
        """Why nothing is read, "" if it is."""
        return self._listener.problem

    async def run(self, learn: Learn) -> None:
        """Until cancelled. What is held then is lost, and asked for again by whoever waits for it."""
        await self._listener.run(lambda channel: self._read(channel, learn), "DNS answers are not read")

    async def _read(self, channel: socket.socket, learn: Learn) -> None:
        while True:
            await readable(channel)
            turns = 0
            for data in datagrams(channel, _AT_ONCE):
                turns += 1
                for one in nfqueue.packets(data):
                    self._take(channel, one, learn)
            await self._clock.sleep(_PAUSE if turns == _AT_ONCE else 0)

    def _take(self, channel: socket.socket, one: Held, learn: Learn) -> None:
        self._counted()
        pending = learn(one.packet)
        if pending is None:
            self._release(channel, one)
            return

        async def held() -> None:
            try:
                await pending
            finally:
                self._release(channel, one)

        task = asyncio.create_task(held(), name="an answer is held")
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    def _release(self, channel: socket.socket, one: Held) -> None:
        try:
            channel.send(nfqueue.accepted(self._queue, (one.number,)))
        except OSError as error:
            log.info("an answer could not be let go: %s", error)
