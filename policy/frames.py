"""Keeps the table of `plan/frames.py` in the kernel as long as policies are enforced here, whoever removes it."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nodelib.addresses import hardware_address
from nodelib.clock import Clock
from nodelib.command import CommandError
from nodelib.nft.edge import NftError
from nodelib.nft.wire import Element
from policy.model import Address, Name
from policy.plan import frames

log = logging.getLogger(__name__)

PERIOD = 60.0  # seconds between two writes: replacing the table takes milliseconds
_MOST_GONE = 1024

Beside = Callable[[Awaitable[None]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Owner:
    """Who has a hardware address, and his addresses; `sure`: the runtime says so, and not a status."""

    name: Name
    addresses: tuple[Address, ...]
    sure: bool


class Table(Protocol):
    """What is needed of the table (nodelib.nft.edge.NftTable)."""

    async def text(self, transaction: str) -> None: ...

    async def write(self, delete: Sequence[Element], add: Sequence[Element]) -> None: ...


class Frames:
    """`on_problem` is told why frames are not filtered here, once for each cause. `beside` commits what the enforcer of
    policies has not planned.

    The whole table is written from time to time; a pod that starts waits for its own elements only. What a pod has been
    given stays its own when its object goes: its processes may go on. It is forgotten when somebody else gets it, or
    when very many have gone after it.
    """

    def __init__(
        self,
        table: Table,
        clock: Clock,
        on_problem: Callable[[str], None],
        beside: Beside = lambda commit: commit,
    ) -> None:
        self._table, self._clock, self._on_problem, self._beside = table, clock, on_problem, beside
        self._owners: dict[str, _Owner] = {}  # by hardware address
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._wanted = False
        self._in_kernel: dict[str, tuple[Address, ...]] | None = None  # None: unknown
        self._changes = self._written = self._whole = 0  # numbers: of the latest change, what is written, wanted whole
        self._writing = asyncio.Lock()
        self.problem = ""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._clock.sleep(PERIOD)
            if self._wanted:
                await self.enforce()

    async def enforce(self) -> None:
        """Write it, and keep it from now on. A kernel or a node that cannot have it is no reason to run no pod."""
        self._wanted = True
        self._changes += 1
        self._whole = self._changes
        await self._write()

    async def hold(self, name: Name, addresses: tuple[Address, ...]) -> None:
        """The runtime has given these to a pod of this node. Returns when the table says so, if it is kept."""
        self._note(_Owner(name, addresses, sure=True))
        if self._wanted:
            await self._write()

    def seen(self, name: Name, addresses: tuple[Address, ...]) -> None:
        """The status of a pod of this node has these: it may be one that an earlier daemon was told of."""
        self._note(_Owner(name, addresses, sure=False))

    def gone(self, name: Name) -> None:
        """The pod has no object any more."""
        for mac in [mac for mac, one in self._owners.items() if one.name == name]:
            self._gone[mac] = None
        while len(self._gone) > _MOST_GONE:
            del self._owners[self._gone.popitem(last=False)[0]]

    async def remove(self) -> None:
        """Policies are left to somebody else."""
        self._wanted = False
        async with self._writing:
            self._in_kernel = None
            if problem := await self._commit(self._table.text(frames.removal())):
                log.info("no table of bridges was removed: %s", problem)

    def _note(self, owner: _Owner) -> None:
        if not owner.addresses:
            return
        mac = hardware_address(owner.addresses[0])
        known = self._owners.get(mac)
        if known is not None and known.sure and not owner.sure and mac not in self._gone:
            return
        self._gone.pop(mac, None)
        if known is None or known.addresses != owner.addresses:
            self._changes += 1
        self._owners[mac] = owner

    async def _write(self) -> None:
        """Write what has changed, together with what changed while somebody else was writing."""
        wanted = self._changes
        async with self._writing:
            if self._written >= wanted:
                return
            number, pods = self._changes, {mac: one.addresses for mac, one in self._owners.items()}
            problem = await self._write_whole_or_new(pods, self._whole > self._written)
            self._written = number
        if problem and problem != self.problem:
            self._on_problem(problem)
        self.problem = problem

    async def _write_whole_or_new(self, pods: dict[str, tuple[Address, ...]], whole: bool) -> str:
        """Returns why the kernel does not have them, "" if it does."""
        known, self._in_kernel = self._in_kernel, None
        if known is not None and not whole:
            new = {mac: addresses for mac, addresses in pods.items() if known.get(mac) != addresses}
            if known.keys().isdisjoint(new) and not await self._commit(self._table.write((), frames.elements(new))):
                self._in_kernel = {**known, **new}  # those that have gone stay until everything is written
                return ""
        problem = await self._commit(self._table.text(frames.transaction(pods)))
        self._in_kernel = None if problem else pods
        return problem

    async def _commit(self, writing: Awaitable[None]) -> str:
        try:
            await self._beside(writing)
        except (CommandError, NftError) as error:
            return str(error)
        return ""
