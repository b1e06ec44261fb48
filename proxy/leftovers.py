"""What endpoints that are gone leave in the kernel: UDP flows that lead to them, clients that are sent to them again.

It is found by reading tables that everybody's pods fill: a quarter of a million entries take seconds. So they are read
beside the syncs, which would keep the rules of all Services waiting. Upstream reads conntrack's within each sync.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent
from nodelib.firewall.objects import Family
from nodelib.netlink.flows import UdpFlow
from nodelib.runner import BoundedFrequencyRunner
from proxy.backends.base import Backend
from proxy.edge.metrics import Metrics
from proxy.model import Desired

log = logging.getLogger(__name__)

_RETRY = 2.0  # seconds
_REST_FACTOR, _LONGEST_REST = 1.0, 10.0  # half of the time at most, and not for long
_NEVER = 3600.0  # seconds; every full sync asks for it


class Flows(Protocol):
    """UDP entries of connection tracking (nodelib.netlink.conntrack.Conntrack). Calls block and raise Permanent."""

    def list_udp(self) -> list[UdpFlow]: ...

    def delete(self, flows: list[UdpFlow]) -> int: ...


class Leftovers:
    """`syncing` is held while rules are written."""

    def __init__(
        self, family: Family, backend: Backend, flows: Flows, metrics: Metrics, syncing: asyncio.Lock, clock: Clock
    ) -> None:
        self._family, self._backend, self._flows, self._metrics = family, backend, flows, metrics
        self._syncing, self._clock = syncing, clock
        self._desired: Desired | None = None
        self._udp = False
        self._runner = BoundedFrequencyRunner(
            f"leftovers {family}",
            self._remove,
            min_interval=0.0,
            retry_interval=_RETRY,
            max_interval=_NEVER,
            clock=clock,
            rest_factor=_REST_FACTOR,
            longest_rest=_LONGEST_REST,
        )

    async def run(self) -> None:
        """Until cancelled."""
        await self._runner.run()

    def written(self, desired: Desired, *, udp: bool) -> None:
        """These are the rules now. `udp`: flows may lead to what is gone."""
        self._desired = desired
        self._udp = self._udp or udp
        self._runner.poke()

    async def _remove(self) -> None:
        try:
            await self._backend.forget_clients()
        except NodewrightError as error:
            log.warning("%s: clients may go on being sent to endpoints that are gone: %s", self._family, error)
        if self._udp and self._desired is not None:
            self._udp = False
            await self._delete_stale_flows()

    async def _delete_stale_flows(self) -> None:
        started = self._clock.monotonic()
        try:
            flows = await asyncio.to_thread(self._flows.list_udp)
            async with self._syncing:  # a flow that was listed is of these rules, or of older ones
                desired = self._desired
            assert desired is not None, "checked by the caller, and never taken back"
            deleted = await asyncio.to_thread(self._delete_stale, desired, flows)
        except Permanent as error:
            log.warning(
                "%s: conntrack could not be cleaned, UDP clients may reach old endpoints: %s", self._family, error
            )
            return
        self._metrics.conntrack.labels(self._family.value).observe(self._clock.monotonic() - started)
        self._metrics.conntrack_deleted.labels(self._family.value).inc(deleted)

    def _delete_stale(self, desired: Desired, flows: list[UdpFlow]) -> int:
        stale = self._backend.stale_flows(desired, flows)
        return self._flows.delete(stale) if stale else 0
