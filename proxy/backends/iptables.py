"""The iptables mode: walks the plans of proxy.plan.iptables with one restore edge."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection

from nodelib.firewall.iptables import Tables
from nodelib.firewall.objects import BUILT_IN, TableContent
from proxy.backends.base import SyncReport
from proxy.model import Desired, NodeFacts, ServicePortName
from proxy.plan.iptables import fixed
from proxy.plan.iptables.context import Context
from proxy.plan.iptables.sync import Plan, Standing, drift, plan_cleanup, plan_full, plan_partial
from proxy.plan.node import context_of_node

log = logging.getLogger(__name__)

# Below this number of changed ports planning takes less than a few milliseconds: no thread needed.
_INLINE_PORTS = 20


class IptablesBackend:
    """One family. `refine` looks up, before each full sync, what the context takes from the machine."""

    def __init__(
        self,
        tables: Tables,
        ctx: Context,
        *,
        detect_node_cidr: bool = False,
        refine: Callable[[Context], Context] = lambda ctx: ctx,
        generation: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._tables = tables
        self._ctx = ctx
        self._detect_node_cidr = detect_node_cidr
        self._refine = refine
        self._generation = generation
        self._standing: Standing | None = None
        self._seen: int | None = None

    @property
    def ready(self) -> bool:
        """False while local traffic is to be told by the node's pod CIDR and the node has none yet."""
        return not self._detect_node_cidr or bool(self._ctx.detector)

    def node_changed(self, node: NodeFacts) -> bool:
        fresh = context_of_node(self._ctx, node, detect_node_cidr=self._detect_node_cidr)
        changed, self._ctx = fresh != self._ctx, fresh
        return changed

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises RestoreError or CommandError; the transaction that failed changed nothing."""
        standing = self._standing
        full = changed is None or standing is None
        # Forgotten until all of it is in: a plan that broke off leaves a state that only a full sync mends.
        self._standing = None
        if changed is None or standing is None:
            self._ctx = await asyncio.to_thread(self._refine, self._ctx)
            plan = await asyncio.to_thread(plan_full, desired, self._ctx, await self._read(rules=False))
        elif len(changed) > _INLINE_PORTS:
            plan = await asyncio.to_thread(plan_partial, desired, changed, self._ctx, standing)
        else:
            plan = plan_partial(desired, changed, self._ctx, standing)
        for change in plan.changes:
            await self._tables.restore(change)
        self._standing = plan.standing
        self._seen = self._generation()
        return _report(plan, full)

    async def audit(self, *, deep: bool) -> list[str]:
        """Raises CommandError. Without a change of the ruleset's generation nothing is read at all."""
        generation = self._generation()
        if self._standing is None or (generation is not None and generation == self._seen):
            return []
        if deep:
            kernel = await self._read(rules=True)
            found = await asyncio.to_thread(drift, self._standing, self._ctx, kernel)
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

    async def cleanup(self) -> None:
        change = plan_cleanup(await self._read(rules=False), self._tables.family)
        await self._tables.restore(change)
        self._standing = None

    async def _read(self, *, rules: bool) -> dict[str, TableContent]:
        """mangle, filter and nat; without `rules` only those of the built-in chains."""
        found = {}
        for table in fixed.TABLES:
            only: Collection[str] | None = None if rules and table != "mangle" else BUILT_IN[table]
            found[table] = await self._tables.save(table, only=only)
        return found


def _report(plan: Plan, full: bool) -> SyncReport:
    ports = plan.standing.ports.values()
    return SyncReport(
        full,
        dict(plan.rules_total),
        dict(plan.rules_written),
        sum(1 for port in ports if port.no_local_internal),
        sum(1 for port in ports if port.no_local_external),
    )
