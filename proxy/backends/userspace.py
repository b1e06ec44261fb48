"""The userspace mode: the proxy's own sockets, and the chains that redirect to them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Protocol

from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.firewall.iptables import RestoreError, Tables
from nodelib.firewall.objects import BUILT_IN, Chain, Family, TableChange, TableContent
from nodelib.netlink.flows import UdpFlow
from nodelib.traces.steps import step
from proxy.backends.base import SyncReport
from proxy.backends.context import NodeBackend, NodeContext
from proxy.model import Desired, Problem, ServicePortName
from proxy.plan.conntrack import redirected_elsewhere
from proxy.plan.iptables.refused import refused_port
from proxy.plan.userspace import portals
from proxy.plan.userspace.portals import Pool, SocketName
from proxy.plan.userspace.roundrobin import Address, Clients, RoundRobin
from proxy.plan.userspace.sockets import Sockets


class Relay(Protocol):
    """A listening socket whose traffic is passed on; open connections survive `close`."""

    @property
    def port(self) -> int: ...

    def drop_except(self, addresses: frozenset[Address]) -> None: ...

    async def close(self) -> None: ...


Choose = Callable[[str, bool], Address | None]
# For the Services of a namespace, by protocol.
Listen = Callable[[str, str, Family, Choose], Awaitable[Relay]]


class UserspaceBackend(NodeBackend):
    """One address family. Unlike the rules of the other modes, this mode stops serving when the proxy ends."""

    def __init__(
        self,
        tables: Tables,
        context: NodeContext,
        *,
        listen: Listen,
        clock: Clock,
        generation: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._tables = tables
        super().__init__(context)
        self._listen = listen
        self._clock = clock
        self._generation = generation
        self._seen: int | None = None
        self._sockets: dict[SocketName, tuple[Relay, RoundRobin]] = {}
        self._room = Sockets()
        self._clients: dict[str, Clients] = {}  # by namespace
        self._chains: tuple[Chain, ...] = ()

    mode = "userspace"

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises RestoreError or CommandError. A socket that cannot be opened is a problem of its port only."""
        before, self._chains = self._chains, ()
        full = changed is None or not before
        # A commit of somebody else since the last sync must not pass for ours: then the next audit reads the kernel.
        alone = full or self._generation() == self._seen
        ctx = await self._context.refresh() if full else self._context.ctx
        names = set(desired.ports) | {name.port for name in self._sockets} if full else changed or ()
        with step("plan"):
            wanted = portals.pools(desired, names, ctx)
        problems = await self._open(wanted)
        chains = portals.chains(desired, {name: relay.port for name, (relay, _) in self._sockets.items()}, ctx)
        if full:
            await self._tables.restore(portals.plan(chains, await self._read(), ctx))
        else:
            different = tuple([new for new, old in zip(chains, before, strict=True) if new != old])
            await self._tables.restore((TableChange("nat", different),))
        # Only now does nothing lead to them.
        await self._close([name for name in self._sockets if name.port in names and name not in wanted])
        self._chains = chains
        self._seen = self._generation() if alone else None
        count = sum(len(chain.rules) for chain in chains)
        return SyncReport(full, {"nat": count}, {"nat": count}, problems=tuple(problems))

    async def audit(self, *, deep: bool) -> list[str]:
        """The four chains are small, so every audit compares all their rules. Raises CommandError."""
        generation = self._generation()
        if not self._chains or (generation is not None and generation == self._seen):
            return []
        found = []
        for change in portals.plan(self._chains, await self._read(), self._context.ctx):
            found += [f"nat {chain.name} is not as we wrote it" for chain in change.chains]
            found += [f"the jump from nat {one.chain} to {one.rule.target} is gone" for one in change.add_jumps]
        if not found:
            self._seen = generation
        return found

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        """Flows to sockets of an earlier proxy process."""
        sockets = list(self._sockets.values())  # a sync may open others meanwhile
        return redirected_elsewhere(desired, flows, {relay.port for relay, _ in sockets})

    def refused_port(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        return refused_port(error.line, desired) if isinstance(error, RestoreError) and error.line else None

    async def cleanup(self) -> None:
        await self._tables.restore(portals.removal(await self._read(), self._context.ctx))
        await self._close(list(self._sockets))
        self._chains = ()

    async def _open(self, wanted: dict[SocketName, Pool]) -> list[Problem]:
        problems = []
        for name, pool in sorted(wanted.items(), key=lambda one: one[0]):  # the same ones on every node
            if name not in self._sockets:
                if (problem := self._room.problem(name)) is not None:
                    problems.append(problem)
                    continue
                namespace = name.port.service.namespace
                round_robin = RoundRobin(self._clients.setdefault(namespace, Clients()))
                choose = self._choose(round_robin)
                try:
                    relay = await self._listen(namespace, name.port.protocol, self._tables.family, choose)
                except Temporary as error:
                    problems.append(Problem(f"Service {name}", str(error)))
                    continue
                self._sockets[name] = (relay, round_robin)
                self._room.add(name, 1)
            relay, round_robin = self._sockets[name]
            round_robin.replace(pool)
            round_robin.expire(self._clock.monotonic())
            relay.drop_except(frozenset(pool.addresses))
        return problems

    def _choose(self, round_robin: RoundRobin) -> Choose:
        def choose(client: str, reset_affinity: bool) -> Address | None:
            return round_robin.choose(client, self._clock.monotonic(), reset_affinity=reset_affinity)

        return choose

    async def _close(self, names: Collection[SocketName]) -> None:
        for name in names:
            relay, round_robin = self._sockets.pop(name)
            self._room.add(name, -1)
            round_robin.close()
            await relay.close()

    async def _read(self) -> TableContent:
        return await self._tables.save("nat", only=BUILT_IN["nat"])
