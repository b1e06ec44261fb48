"""Takes DNS answers to pods: puts their addresses into the kernel's sets before a pod gets the answer.

The daemon is on the way of these answers only as long as it lives: without it the kernel lets them pass at once, and
what was learnt stays in the sets for its time. An answer that cannot be written in time goes on all the same: no policy
is there to stop DNS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from nodelib.clock import Clock
from nodelib.firewall.objects import Family
from nodelib.nft.edge import NftError
from nodelib.nft.wire import Message
from policy.domains.model import Answer, Key, Learnt
from policy.domains.plan import messages
from policy.domains.plan.answers import answer
from policy.domains.plan.datagrams import received
from policy.domains.plan.learnt import FLOOR, Memory
from policy.model import Address, DomainNames
from policy.plan import layout
from policy.plan.entries import KNOWN
from policy.plan.program import Program

log = logging.getLogger(__name__)

HELD = 1.0  # seconds that an answer is held at most


class Table(Protocol):
    """What is needed of our nftables table in one family (nodelib.nft.edge.NftTable)."""

    async def commit(self, batch: list[Message]) -> None: ...

    async def elements(self, sets: Iterable[str]) -> dict[str, set[bytes]] | None: ...

    async def sets(self) -> list[str]: ...


class Domains:
    """`tables`: not the enforcer's, which are busy for seconds at times. `addresses`: all of the pod that has one.

    `beside`: what commits something that the enforcer has not planned.
    """

    def __init__(
        self,
        tables: Mapping[Family, Table],
        addresses: Callable[[Address], tuple[Address, ...]],
        clock: Clock,
        *,
        beside: Callable[[Awaitable[None]], Awaitable[None]] = lambda commit: commit,
        floor: float = FLOOR,
    ) -> None:
        self._tables, self._addresses, self._clock, self._beside = tables, addresses, clock, beside
        self._sets: dict[Family, Mapping[str, DomainNames]] = {}
        self._writing: set[asyncio.Future[None]] = set()
        self.memory = Memory(floor)

    async def load(self) -> None:
        """Remember what an earlier run of the daemon has left in the kernel. Raises NftError."""
        for family, table in self._tables.items():
            for name in await table.sets():
                if not name.startswith(layout.NAMES):
                    continue
                known = await table.elements((layout.known_name(name),)) or {}
                left = {one.key: one.seconds - KNOWN for one in _read(family, name, known)}
                begin = {one.key: one.seconds for one in _read(family, name, await table.elements((name,)) or {})}
                self.memory.load(map(Learnt._make, (left | begin).items()), self._clock.monotonic())

    def synced(self, programs: Mapping[Family, Program]) -> None:
        """The kernel has these now."""
        self._sets = {family: program.names for family, program in programs.items()}
        self.memory.forget_sets(name for names in self._sets.values() for name in names)

    def kept(self, program: Program) -> list[Message]:
        """What belongs into the sets of a table that is written anew."""
        return messages.kept(program.family, program.names, self.memory.all(self._clock.monotonic()))

    async def forget(self, addresses: Iterable[Address]) -> None:
        """A pod has gone, or a new one has been given these addresses: what the last one asked is not its own."""
        await self._write([], self.memory.forget(addresses))

    def learn(self, packet: bytes) -> Coroutine[Any, Any, None] | None:
        """What to wait for before this packet may go on; None if it says nothing new."""
        found = received(packet)
        said = None if found is None else answer(found[1])
        if found is None or said is None:
            return None
        news, gone = self._news(found[0], said)
        if news or gone:
            # Not cancelled: half a request on the netlink socket would be taken for the next one's.
            writing = asyncio.ensure_future(self._write(news, gone))
            self._writing.add(writing)
            writing.add_done_callback(self._writing.discard)
        # What is known already may be on its way to the kernel yet.
        return self._in_time(said, set(self._writing)) if self._writing else None

    def _news(self, receiver: Address, said: Answer) -> tuple[list[Learnt], list[Key]]:
        own = self._addresses(receiver) or (receiver,)
        sets = {name: one for names in self._sets.values() for name, one in names.items()}
        return self.memory.learn(said, own, sets, self._clock.monotonic())

    async def _in_time(self, said: Answer, writing: set[asyncio.Future[None]]) -> None:
        _, late = await asyncio.wait(writing, timeout=HELD)
        if late:
            log.warning("an answer about %s goes on before its addresses are allowed: the kernel is busy", said.name)

    async def _write(self, news: list[Learnt], gone: list[Key]) -> None:
        for family, table in self._tables.items():
            batch = messages.written(family, news, gone)
            if batch:
                try:
                    await self._beside(table.commit(batch))
                except NftError as error:
                    # The sets go with their policies; then nobody needs the addresses.
                    log.info("%d addresses of DNS answers were not written: %s", len(news), error)
                    self.memory.unlearn(one.key for one in news)


def _read(family: Family, name: str, found: Mapping[str, set[bytes]]) -> list[Learnt]:
    return [one for raws in found.values() for one in messages.read(family, name, raws)]
