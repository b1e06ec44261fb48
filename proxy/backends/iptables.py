"""The iptables mode: walks the plans of proxy.plan.iptables, one iptables-restore after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterable
from functools import partial

from nodelib.errors import NodewrightError
from nodelib.firewall.iptables import RestoreError, Tables
from nodelib.firewall.objects import BUILT_IN, Change, TableContent
from nodelib.netlink.flows import UdpFlow
from nodelib.traces.steps import step
from proxy.backends.base import SyncReport
from proxy.backends.beside import planned
from proxy.backends.context import NodeBackend, NodeContext
from proxy.model import Desired, ServicePortName
from proxy.plan.conntrack import stale_flows
from proxy.plan.context import Context
from proxy.plan.iptables import fixed
from proxy.plan.iptables.refused import refused_port
from proxy.plan.iptables.sync import (
    AppliedState,
    Plan,
    drift,
    full_stages,
    next_stage,
    plan_cleanup,
    plan_guard,
    plan_partial,
)

log = logging.getLogger(__name__)

_PORTS_AS_ONE = 1000  # ports that have not changed, which take as long as one that has: a millisecond


class IptablesBackend(NodeBackend):
    """One address family. `generation`: a GenerationReader, or a function that gives None where the kernel has none.

    `on_guarded` is called whenever KUBE-FIREWALL has been written or found right, where localhost NodePorts need it.
    """

    def __init__(
        self,
        tables: Tables,
        context: NodeContext,
        *,
        generation: Callable[[], int | None] = lambda: None,
        on_guarded: Callable[[], None] = lambda: None,
    ) -> None:
        self._tables = tables
        super().__init__(context)
        self._generation = generation
        self._on_guarded = on_guarded
        self._applied: AppliedState | None = None
        self._desired = Desired(tables.family)
        self._seen: int | None = None

    mode = "iptables"

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises RestoreError or CommandError; a transaction that fails changes nothing."""
        applied = self._applied
        full = changed is None or applied is None
        # A commit of somebody else since the last sync must not pass for ours: then the next audit reads the kernel.
        alone = full or self._generation() == self._seen
        # Unknown until everything is written: a plan that failed half-way leaves a state that only a full sync repairs.
        self._applied = None
        if changed is None or applied is None:
            plan = await self._write_all(desired, await self._context.refresh())
        else:
            plan = await self._plan_some(desired, changed, applied)
        for change in plan.changes:
            await self._tables.restore(change)
        self._applied, self._desired = plan.applied, desired
        self._seen = self._generation() if alone else None
        if full and fixed.has_firewall(self._context.ctx):
            self._on_guarded()
        return _report(plan, full)

    async def guard_loopback(self) -> None:
        """Write KUBE-FIREWALL alone, where localhost NodePorts need it. Raises RestoreError or CommandError."""
        ctx = self._context.ctx
        if fixed.has_firewall(ctx):
            await self._tables.restore(plan_guard(await self._tables.save("filter", only=BUILT_IN["filter"]), ctx))
            self._on_guarded()

    async def _write_all(self, desired: Desired, ctx: Context) -> Plan:
        """Write one stage while the next one is being planned."""
        stages = full_stages(desired, ctx, await self._read())
        stage = await _next(stages)
        while not isinstance(stage, Plan):
            _, stage = await asyncio.gather(self._tables.restore(stage), _next(stages))
        return stage

    async def _plan_some(self, desired: Desired, changed: frozenset[ServicePortName], applied: AppliedState) -> Plan:
        work = partial(plan_partial, desired, changed, self._context.ctx, applied)
        # All of them are put in order when one changes that has rules in the chains of all.
        ports = len(changed) + len(applied.ports) // _PORTS_AS_ONE
        with step("plan"):
            return await planned(work, ports=ports, size=lambda: desired.size(changed) + applied.size(changed))

    async def audit(self, *, deep: bool) -> list[str]:
        """Read nothing as long as the ruleset's generation is unchanged. Raises CommandError."""
        generation = self._generation()
        applied = self._applied
        if applied is None or (generation is not None and generation == self._seen):
            return []
        if deep:
            kernel = await self._read()
            found = await asyncio.to_thread(drift, self._desired, self._context.ctx, kernel, large=applied.large)
        else:
            present = await asyncio.gather(*[self._tables.chain_exists(table, fixed.CANARY) for table in fixed.TABLES])
            found = [
                f"{table} {fixed.CANARY} is gone"
                for table, there in zip(fixed.TABLES, present, strict=True)
                if not there
            ]
        if deep and not found:
            self._seen = generation
        return found

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        return stale_flows(desired, flows)

    def refused_port(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        return refused_port(error.line, desired) if isinstance(error, RestoreError) and error.line else None

    async def cleanup(self) -> None:
        change = plan_cleanup(await self._read(), self._tables.family)
        await self._tables.restore(change)
        self._applied = None

    async def _read(self) -> dict[str, TableContent]:
        """mangle, filter and nat: the rules of the built-in chains, and fingerprints of all other chains."""
        return {table: await self._tables.save(table, only=BUILT_IN[table]) for table in fixed.TABLES}


async def _next(stages: Generator[Change, None, Plan]) -> Change | Plan:
    with step("plan"):
        return await asyncio.to_thread(next_stage, stages)


def _report(plan: Plan, full: bool) -> SyncReport:
    ports = plan.applied.ports.values()
    return SyncReport(
        full,
        dict(plan.rules_total),
        dict(plan.rules_written),
        sum(1 for port in ports if port.no_local_internal),
        sum(1 for port in ports if port.no_local_external),
    )
