"""Keeps the link informed: hands frames to the responder and sends what it returns. Opens the link again if it goes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address
from typing import Protocol

from loadbalancer.model import Address
from loadbalancer.plan.frames import solicited_node
from loadbalancer.plan.responder import Responder
from nodelib.clock import Clock
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

_TICK = 0.25  # seconds


class Link(Protocol):
    """loadbalancer/edge/link.py Link."""

    @property
    def mac(self) -> bytes: ...

    @property
    def failure(self) -> OSError | None: ...

    def open(self) -> None: ...

    def close(self) -> None: ...

    def send(self, frames: Iterable[bytes]) -> None: ...

    def join(self, groups: Iterable[IPv6Address]) -> None: ...


class Held(Protocol):
    """loadbalancer/edge/held_file.py HeldFile."""

    def load(self) -> frozenset[Address]: ...

    def save(self, addresses: Iterable[Address]) -> None: ...


class Counts(Protocol):
    """Gets how many addresses are announced, frames were sent, and claims of others seen."""

    def sent(self, announced: int, frames: int, conflicts: int) -> None: ...


class Announcer:
    """`certain()`: whether the table that this daemon has seen is the newest one."""

    def __init__(self, held: Held, counts: Counts, clock: Clock, certain: Callable[[], bool]) -> None:
        self.problem = ""
        self._held, self._counts, self._clock, self._certain = held, counts, clock, certain
        self._responder = Responder()
        self._link: Link | None = None
        self._saved = held.load()
        self._responder.assign(self._saved, clock.monotonic())

    @property
    def given_way(self) -> frozenset[Address]:
        """Addresses that another node was found to have, while the API server could not be asked."""
        return self._responder.given_way

    def assign(self, addresses: frozenset[Address]) -> None:
        """What the table gives this node."""
        if addresses != self._saved:
            self._held.save(addresses)
            self._saved = addresses
        self._responder.assign(addresses, self._clock.monotonic())
        self._tick()

    def received(self, frames: list[bytes]) -> None:
        out = self._responder.handle(frames, self._clock.monotonic(), certain=self._certain())
        self._send(out)

    async def run(self, link: Link) -> None:
        """Until cancelled."""
        try:
            while True:
                if self._link is None or self._link.failure is not None:
                    self._open(link)
                self._tick()
                await self._clock.sleep(_TICK)
        finally:
            link.close()
            self._link = None

    def _open(self, link: Link) -> None:
        if self._link is not None:
            log.warning("the link has failed and is opened again: %s", self._link.failure)
            link.close()
            self._link = None
        try:
            link.open()
        except NodewrightError as error:
            if str(error) != self.problem:
                log.error("%s", error)
            self.problem = str(error)
            return
        self.problem = ""
        self._link = link
        self._responder.mac = link.mac
        self._responder.announce_again(self._clock.monotonic())

    def _tick(self) -> None:
        if self._link is None:
            return
        self._link.join(solicited_node(one) for one in self._saved if isinstance(one, IPv6Address))
        self._send(self._responder.tick(self._clock.monotonic(), certain=self._certain()))

    def _send(self, frames: list[bytes]) -> None:
        if frames and self._link is not None:
            self._link.send(frames)
        self._counts.sent(len(self._responder.answered), len(frames), self._responder.conflicts)
