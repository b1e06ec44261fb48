"""Listens to the answers that our rule holds, and lets them go: a socket, bounded in how fast it is read."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from nodelib import netfilter, nfqueue
from nodelib.clock import Clock
from nodelib.netfilter_listener import LARGEST, listening, readable, why
from nodelib.nfqueue import Held

log = logging.getLogger(__name__)

_WAITING = 1024  # answers that the kernel holds; further ones pass unread
_BUFFER = 1 << 20
_AT_ONCE = 32  # datagrams of one turn
_PAUSE = 0.005  # seconds after a full turn: a flood does not take the loop from everybody else
_TRY_AGAIN = 30.0  # seconds, after another program had the queue

Learn = Callable[[bytes], Coroutine[Any, Any, None] | None]


class HeldAnswers:
    """The listener of one queue. `counted` hears of each answer; `problem`: why nothing is read, "" if it is."""

    def __init__(
        self,
        queue: int,
        clock: Clock,
        counted: Callable[[], None] = lambda: None,
        *,
        connect: Callable[[], socket.socket] = netfilter.connect,
    ) -> None:
        self._queue, self._clock, self._counted, self._connect = queue, clock, counted, connect
        self._waiting: set[asyncio.Task[None]] = set()
        self.problem = "it has just been started"

    async def run(self, learn: Learn) -> None:
        """Until cancelled. What is held then is lost, and asked for again by whoever waits for it."""
        while True:
            try:
                channel = listening(self._connect, nfqueue.binding(self._queue, most=_WAITING), _BUFFER)
            except OSError as error:
                self.problem = why(error, f"NFQUEUE {self._queue}")
                log.warning("DNS answers are not read: %s", self.problem)
                await self._clock.sleep(_TRY_AGAIN)
                continue
            self.problem = ""
            try:
                with channel:
                    await self._read(channel, learn)
            finally:
                self.problem = "the daemon is about to listen again"

    async def _read(self, channel: socket.socket, learn: Learn) -> None:
        while True:
            await readable(channel)
            full = True
            for _ in range(_AT_ONCE):
                try:
                    data = channel.recv(LARGEST)
                except BlockingIOError:
                    full = False
                    break
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    continue  # the kernel has let go what did not fit
                for one in nfqueue.packets(data):
                    self._take(channel, one, learn)
            await self._clock.sleep(_PAUSE if full else 0)

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
