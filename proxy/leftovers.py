"""What endpoints that are gone leave in the kernel: UDP flows that lead to them, clients that are sent to them again.

It is found by reading tables that everybody's pods fill: a quarter of a million entries take seconds. So they are read
beside the syncs, which would keep the rules of all Services waiting. Upstream reads conntrack's within each sync.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from nodelib.clock import Clock
from nodelib.firewall.objects import Family
from nodelib.netlink.flows import UdpFlow
from nodelib.runner import BoundedFrequencyRunner
from proxy.backends.base import Backend
from proxy.edge.metrics import Metrics
from proxy.model import Desired

# After a failure. Clients are sent to what is gone until they are forgotten; conntrack that cannot be read, for lack of
# a right or a module, seldom can a moment later.
_CLIENTS_RETRY, _FLOWS_RETRY = 2.0, 30.0  # seconds
# Of the time, half at most for flows and a third for clients; not for long.
_FLOWS_REST, _CLIENTS_REST, _LONGEST_REST = 1.0, 2.0, 10.0
_NEVER = 3600.0  # seconds; every full sync asks for it


class Flows(Protocol):
    """UDP entries of connection tracking (nodelib.netlink.conntrack.Conntrack). Calls block and raise Permanent."""

    def list_udp(self) -> list[UdpFlow]: ...

    def delete(self, flows: list[UdpFlow]) -> int: ...


class Leftovers:
    """Flows do not wait for clients, of which there may be far more. `syncing` is held while rules are written."""

    def __init__(
        self, family: Family, backend: Backend, flows: Flows, metrics: Metrics, syncing: asyncio.Lock, clock: Clock
    ) -> None:
        self._family, self._backend, self._flows, self._metrics = family, backend, flows, metrics
        self._syncing, self._clock = syncing, clock
        self._desired: Desired | None = None
        self._udp = False
        self._deleting = self._runner("delete stale UDP flows", self._delete_flows, _FLOWS_RETRY, _FLOWS_REST)
        self._forgetting = self._runner("forget clients", self._forget_clients, _CLIENTS_RETRY, _CLIENTS_REST)

    def _runner(
        self, name: str, work: Callable[[], Awaitable[None]], retry: float, rest_factor: float
    ) -> BoundedFrequencyRunner:
        return BoundedFrequencyRunner(
            f"{self._family}: {name}",
            work,
            min_interval=0.0,
            retry_interval=retry,
            max_interval=_NEVER,
            clock=self._clock,
            rest_factor=rest_factor,
            longest_rest=_LONGEST_REST,
        )

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.gather(self._deleting.run(), self._forgetting.run())

    def written(self, desired: Desired, *, udp: bool) -> None:
        """These are the rules now. `udp`: flows may lead to what is gone."""
        self._desired = desired
        self._forgetting.poke()
        if udp:
            self._udp = True
            self._deleting.poke()

    async def _forget_clients(self) -> None:
        await self._backend.forget_clients()

    async def _delete_flows(self) -> None:
        if not self._udp:
            return
        self._udp = False
        started = self._clock.monotonic()
        try:
            flows = await asyncio.to_thread(self._flows.list_udp)
            async with self._syncing:  # a flow that was listed is of these rules, or of older ones
                desired = self._desired
            assert desired is not None, "there are some where a UDP port was written"
            deleted = await asyncio.to_thread(self._delete_stale, desired, flows)
        except BaseException:
            self._udp = True
            raise
        self._metrics.conntrack.labels(self._family.value).observe(self._clock.monotonic() - started)
        self._metrics.conntrack_deleted.labels(self._family.value).inc(deleted)

    def _delete_stale(self, desired: Desired, flows: list[UdpFlow]) -> int:
        stale = self._backend.stale_flows(desired, flows)
        return self._flows.delete(stale) if stale else 0
