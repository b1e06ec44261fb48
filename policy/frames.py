"""Keeps the table of `plan/frames.py` in the kernel as long as policies are enforced here, whoever removes it."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from nodelib import command
from nodelib.addresses import hardware_address
from nodelib.clock import Clock
from nodelib.command import CommandError, Completed
from policy.model import Address, Name
from policy.plan import frames

log = logging.getLogger(__name__)

PERIOD = 60.0  # seconds between two writes: replacing the table takes milliseconds
_MOST_GONE = 1024

Run = Callable[..., Awaitable[Completed]]


@dataclass(frozen=True, slots=True)
class _Owner:
    """Who has a hardware address, and his addresses; `sure`: the runtime says so, and not a status."""

    name: Name
    addresses: tuple[Address, ...]
    sure: bool


class Frames:
    """`on_problem` is told why frames are not filtered here, once for each cause.

    What a pod has been given stays its own when its object goes: its processes may go on. It is forgotten when somebody
    else gets it, or when very many have gone after it.
    """

    def __init__(self, clock: Clock, on_problem: Callable[[str], None], run: Run = command.run) -> None:
        self._clock, self._on_problem, self._run = clock, on_problem, run
        self._owners: dict[str, _Owner] = {}  # by hardware address
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._wanted = False
        self._changes = self._written = 0
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
            if problem := await self._commit(frames.removal()):
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
            number, text = self._changes, frames.transaction({mac: one.addresses for mac, one in self._owners.items()})
            problem = await self._commit(text)
            self._written = number
        if problem and problem != self.problem:
            self._on_problem(problem)
        self.problem = problem

    async def _commit(self, transaction: str) -> str:
        try:
            await self._run(("nft", "-f", "-"), stdin=transaction.encode(), timeout=60)
        except CommandError as error:
            return str(error)
        return ""
