"""Takes DNS answers to pods: puts their addresses into the kernel's sets before a pod gets the answer.

The daemon is on the way of these answers only as long as it lives: without it the kernel lets them pass at once, and
what was learnt stays in the sets for its time. An answer that cannot be written in time goes on all the same: no policy
is there to stop DNS.

The kernel may be busy for seconds, and a pod may ask without end: what comes meanwhile is written together, and of one
pod no more waits than it may know.
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
from policy.domains.plan.learnt import FLOOR, MOST_OF_POD, Memory
from policy.model import VERSION, Address, DomainNames
from policy.plan import layout
from policy.plan.entries import KNOWN
from policy.plan.program import Program

log = logging.getLogger(__name__)

HELD = 1.0  # seconds that an answer is held at most
_MOST_WAITING = 2 * MOST_OF_POD  # addresses of one pod, new ones and those that have made room for them

# What is to be written of one pod: what it has learnt, and (None) what it no longer has.
_Part = dict[Key, Learnt | None]


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
        self._waiting: dict[Address, _Part] = {}
        self._collected = asyncio.Event()  # set when what waits now has been written
        self._under_way: asyncio.Event | None = None  # the same of what is being written
        self._writer: asyncio.Task[None] | None = None
        self._late = False
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
        gone = self.memory.forget(addresses)
        if gone:
            await self._add([], gone).wait()

    def learn(self, packet: bytes) -> Coroutine[Any, Any, None] | None:
        """What to wait for before this packet may go on; None if it says nothing new."""
        found = received(packet)
        said = None if found is None else answer(found[1], self._concerns)
        if found is None or said is None:
            return None
        own = self._addresses(found[0]) or (found[0],)
        if any(len(self._waiting.get(one, ())) >= _MOST_WAITING for one in own):
            self.memory.left_out += 1
            return None
        news, gone = self._news(own, said)
        # What is known already may be on its way to the kernel yet.
        written = self._add(news, gone) if news or gone else self._collected if self._waiting else self._under_way
        return None if written is None else self._in_time(said, written)

    def _concerns(self, name: str) -> bool:
        return any(one.have(name) for names in self._sets.values() for one in names.values())

    def _news(self, own: tuple[Address, ...], said: Answer) -> tuple[list[Learnt], list[Key]]:
        sets = {name: one for names in self._sets.values() for name, one in names.items()}
        return self.memory.learn(said, own, sets, self._clock.monotonic())

    async def _in_time(self, said: Answer, written: asyncio.Event) -> None:
        try:
            async with asyncio.timeout(HELD):
                await written.wait()
        except TimeoutError:
            if not self._late:
                log.warning("answers go on before their addresses are allowed: the kernel is busy (%s)", said.name)
            self._late = True

    def _add(self, news: Iterable[Learnt], gone: Iterable[Key]) -> asyncio.Event:
        """Have it written with what waits already. Returns what is set then."""
        for key in gone:
            self._waiting.setdefault(key.pod, {})[key] = None
        for one in news:
            self._waiting.setdefault(one.key.pod, {})[one.key] = one
        if self._writer is None:
            # Not cancelled: half a request on the netlink socket would be taken for the next one's.
            self._writer = asyncio.create_task(self._write_all(), name="what pods have learnt is written")
        return self._collected

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                parts, self._waiting = self._waiting, {}
                self._under_way, self._collected = self._collected, asyncio.Event()
                try:
                    for family in self._tables:
                        await self._write(family, parts)
                finally:
                    self._under_way.set()
                self._late = False
        finally:
            self._writer = self._under_way = None

    async def _write(self, family: Family, parts: Mapping[Address, _Part]) -> None:
        own = [part for pod, part in parts.items() if pod.version == VERSION[family]]
        if not own or await self._committed(family, own) or len(own) == 1:
            return
        for part in own:  # one that cannot be written does not stop the others
            await self._committed(family, [part])

    async def _committed(self, family: Family, parts: list[_Part]) -> bool:
        entries = [entry for part in parts for entry in part.items()]
        news = [one for _, one in entries if one is not None]
        batch = messages.written(family, news, [key for key, one in entries if one is None])
        try:
            await self._beside(self._tables[family].commit(batch))
        except NftError as error:
            if len(parts) == 1:
                # The sets go with their policies; then nobody needs the addresses.
                log.info("%d addresses of DNS answers were not written: %s", len(news), error)
                self.memory.unlearn(one.key for one in news if one.key not in self._waiting.get(one.key.pod, ()))
            return False
        return True


def _read(family: Family, name: str, found: Mapping[str, set[bytes]]) -> list[Learnt]:
    return [one for raws in found.values() for one in messages.read(family, name, raws)]
