"""The userspace mode: sockets of the proxy itself, and the chains that redirect to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.firewall.iptables import RestoreError, Tables
from nodelib.firewall.objects import BUILT_IN, Chain, Family, TableChange, TableContent
from nodelib.flows import UdpFlow
from proxy.backends.base import SyncReport
from proxy.backends.facts import ContextOfNode, OfNode
from proxy.model import Desired, Problem, ServicePortName
from proxy.plan import userspace
from proxy.plan.conntrack import redirected_elsewhere
from proxy.plan.iptables.blame import culprit
from proxy.plan.userspace import Pool, SocketName
from proxy.rotation import Address, Rotation


class Relay(Protocol):
    """One listening socket that passes on what it gets; what is under way goes on after `close`."""

    @property
    def port(self) -> int: ...

    def drop_except(self, addresses: frozenset[Address]) -> None: ...

    async def close(self) -> None: ...


Choose = Callable[[str, bool], Address | None]
Listen = Callable[[str, Family, Choose], Awaitable[Relay]]


class UserspaceBackend(OfNode):
    """One family. Unlike the rules of the other modes, what this mode serves ends with the proxy."""

    def __init__(
        self,
        tables: Tables,
        facts: ContextOfNode,
        *,
        listen: Listen,
        clock: Clock,
        generation: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._tables = tables
        super().__init__(facts)
        self._listen = listen
        self._clock = clock
        self._generation = generation
        self._seen: int | None = None
        self._sockets: dict[SocketName, tuple[Relay, Rotation]] = {}
        self._chains: tuple[Chain, ...] = ()

    mode = "userspace"

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises RestoreError or CommandError. A socket that cannot be had is a problem of its port alone."""
        before, self._chains = self._chains, ()
        full = changed is None or not before
        # A commit of somebody else since the last look must not pass for ours: the next audit reads then.
        alone = full or self._generation() == self._seen
        ctx = await self._facts.refresh() if full else self._facts.ctx
        names = set(desired.ports) | {name.port for name in self._sockets} if full else changed or ()
        wanted = userspace.pools(desired, names, ctx)
        problems = await self._open(wanted)
        chains = userspace.chains(desired, {name: relay.port for name, (relay, _) in self._sockets.items()}, ctx)
        if full:
            await self._tables.restore(userspace.plan(chains, await self._read(), ctx))
        else:
            different = tuple([new for new, old in zip(chains, before, strict=True) if new != old])
            await self._tables.restore((TableChange("nat", different),))
        # Only when nothing leads to them any more.
        await self._close([name for name in self._sockets if name.port in names and name not in wanted])
        self._chains = chains
        self._seen = self._generation() if alone else None
        count = sum(len(chain.rules) for chain in chains)
        return SyncReport(full, {"nat": count}, {"nat": count}, problems=tuple(problems))

    async def audit(self, *, deep: bool) -> list[str]:
        """Raises CommandError. The four chains are small: each look is a deep one."""
        generation = self._generation()
        if not self._chains or (generation is not None and generation == self._seen):
            return []
        found = []
        for change in userspace.plan(self._chains, await self._read(), self._facts.ctx):
            found += [f"nat {chain.name} is not as we wrote it" for chain in change.chains]
            found += [f"the jump from nat {one.chain} to {one.rule.target} is gone" for one in change.add_jumps]
        if not found:
            self._seen = generation
        return found

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        """Those to sockets of a proxy that is gone."""
        return redirected_elsewhere(desired, flows, {relay.port for relay, _ in self._sockets.values()})

    def blame(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        return culprit(error.line, desired) if isinstance(error, RestoreError) and error.line else None

    async def cleanup(self) -> None:
        await self._tables.restore(userspace.removal(await self._read(), self._facts.ctx))
        await self._close(list(self._sockets))
        self._chains = ()

    async def _open(self, wanted: dict[SocketName, Pool]) -> list[Problem]:
        problems = []
        for name, pool in wanted.items():
            if name not in self._sockets:
                rotation = Rotation()
                try:
                    relay = await self._listen(name.port.protocol, self._tables.family, self._choose(rotation))
                except Temporary as error:
                    problems.append(Problem(f"Service {name}", str(error)))
                    continue
                self._sockets[name] = (relay, rotation)
            relay, rotation = self._sockets[name]
            rotation.replace(pool)
            rotation.expire(self._clock.monotonic())
            relay.drop_except(frozenset(pool.addresses))
        return problems

    def _choose(self, rotation: Rotation) -> Choose:
        return lambda client, afresh: rotation.choose(client, self._clock.monotonic(), afresh=afresh)

    async def _close(self, names: Collection[SocketName]) -> None:
        for name in names:
            relay, _ = self._sockets.pop(name)
            await relay.close()

    async def _read(self) -> TableContent:
        return await self._tables.save("nat", only=BUILT_IN["nat"])
