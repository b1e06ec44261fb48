"""The iptables mode: walks the plans of proxy.plan.iptables with one restore edge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from nodelib.errors import NodewrightError
from nodelib.firewall.iptables import RestoreError, Tables
from nodelib.firewall.objects import BUILT_IN, TableContent
from nodelib.flows import UdpFlow
from proxy.backends.base import SyncReport
from proxy.backends.facts import ContextOfNode, OfNode
from proxy.model import Desired, ServicePortName
from proxy.plan.conntrack import stale_flows
from proxy.plan.context import Context
from proxy.plan.iptables import fixed
from proxy.plan.iptables.blame import culprit
from proxy.plan.iptables.sync import Plan, Standing, drift, full_stages, next_stage, plan_cleanup, plan_partial

log = logging.getLogger(__name__)

# Below this number of changed ports planning takes less than a few milliseconds: no thread needed.
_INLINE_PORTS = 20


class IptablesBackend(OfNode):
    """One family of it."""

    def __init__(
        self, tables: Tables, facts: ContextOfNode, *, generation: Callable[[], int | None] = lambda: None
    ) -> None:
        self._tables = tables
        super().__init__(facts)
        self._generation = generation
        self._standing: Standing | None = None
        self._desired = Desired(tables.family)
        self._seen: int | None = None

    mode = "iptables"

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises RestoreError or CommandError; the transaction that failed changed nothing."""
        standing = self._standing
        full = changed is None or standing is None
        # A commit of somebody else since the last look must not pass for ours: the next audit reads then.
        alone = full or self._generation() == self._seen
        # Forgotten until all of it is in: a plan that broke off leaves a state that only a full sync mends.
        self._standing = None
        if changed is None or standing is None:
            plan = await self._write_all(desired, await self._facts.refresh())
        elif len(changed) > _INLINE_PORTS:
            plan = await asyncio.to_thread(plan_partial, desired, changed, self._facts.ctx, standing)
        else:
            plan = plan_partial(desired, changed, self._facts.ctx, standing)
        for change in plan.changes:
            await self._tables.restore(change)
        self._standing, self._desired = plan.standing, desired
        self._seen = self._generation() if alone else None
        return _report(plan, full)

    async def _write_all(self, desired: Desired, ctx: Context) -> Plan:
        """A stage is in the kernel's hands while the next one is planned."""
        stages = full_stages(desired, ctx, await self._read())
        step = await asyncio.to_thread(next_stage, stages)
        while not isinstance(step, Plan):
            _, step = await asyncio.gather(self._tables.restore(step), asyncio.to_thread(next_stage, stages))
        return step

    async def audit(self, *, deep: bool) -> list[str]:
        """Raises CommandError. Without a change of the ruleset's generation nothing is read at all."""
        generation = self._generation()
        standing = self._standing
        if standing is None or (generation is not None and generation == self._seen):
            return []
        if deep:
            kernel = await self._read()
            found = await asyncio.to_thread(drift, self._desired, self._facts.ctx, kernel, large=standing.large)
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

    def blame(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        return culprit(error.line, desired) if isinstance(error, RestoreError) and error.line else None

    async def cleanup(self) -> None:
        change = plan_cleanup(await self._read(), self._tables.family)
        await self._tables.restore(change)
        self._standing = None

    async def _read(self) -> dict[str, TableContent]:
        """mangle, filter and nat: rules of the built-in chains, of all others fingerprints."""
        return {table: await self._tables.save(table, only=BUILT_IN[table]) for table in fixed.TABLES}


def _report(plan: Plan, full: bool) -> SyncReport:
    ports = plan.standing.ports.values()
    return SyncReport(
        full,
        dict(plan.rules_total),
        dict(plan.rules_written),
        sum(1 for port in ports if port.no_local_internal),
        sum(1 for port in ports if port.no_local_external),
    )
