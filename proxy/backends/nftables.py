"""The nftables mode: walks the plans of proxy.plan.nftables with one table edge."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable

from nodelib.errors import NodewrightError
from nodelib.flows import UdpFlow
from nodelib.nft.edge import NftError, Table
from nodelib.nft.wire import Element, Message
from proxy.backends.base import SyncReport
from proxy.backends.facts import ContextOfNode, OfNode
from proxy.model import Desired, ServicePortName
from proxy.plan.conntrack import stale_flows
from proxy.plan.context import Context
from proxy.plan.nftables import layout
from proxy.plan.nftables.affinity import loses_endpoints, stale_clients
from proxy.plan.nftables.ports import port_elements
from proxy.plan.nftables.sync import Delta, Kernel, Ledger, difference, plan

log = logging.getLogger(__name__)

# Below this number of changed ports planning takes less than a few milliseconds: no thread needed.
_INLINE_PORTS = 20
# A first sync beyond this is sent in parts, endpoints before the fronts that lead to them.
_ATOMIC = 20_000


class NftablesBackend(OfNode):
    """One family. Nothing is read from the kernel but at a full sync, in an audit, and of a lost sticky endpoint."""

    def __init__(
        self, table: Table, facts: ContextOfNode, *, generation: Callable[[], int | None] = lambda: None
    ) -> None:
        self._table = table
        super().__init__(facts)
        self._generation = generation
        self._ledger: Ledger | None = None
        self._seen: int | None = None
        self._rules = ""

    mode = "nftables"

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        return self._facts.service_cidrs_changed(cidrs)

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises NftError or CommandError; the transaction that failed changed nothing."""
        ledger = self._ledger
        # A commit of somebody else since the last look must not pass for ours: the next audit reads then.
        alone = changed is None or ledger is None or self._generation() == self._seen
        # Forgotten until all of it is in: a plan that broke off leaves a state that only a full sync mends.
        self._ledger = None
        if changed is None or ledger is None:
            ledger, delta = await self._write_all(desired)
            full = True
        else:
            full, delta = False, await self._write_some(desired, changed, ledger)
        self._ledger = ledger
        self._seen = self._generation() if alone else None
        if full or loses_endpoints(delta.delete, delta.ports.values()):
            await self._forget_clients(ledger)
        return _report(ledger, delta, full)

    async def audit(self, *, deep: bool) -> list[str]:
        """Raises NftError. Without a change of the ruleset's generation nothing is read at all."""
        generation = self._generation()
        if self._ledger is None or (generation is not None and generation == self._seen):
            return []
        found = []
        if await self._table.rules_digest() != self._rules:
            found.append(f"the rules of table {layout.TABLE} are not ours any more")
        elif deep:
            kernel = await self._table.elements(layout.FILLED)
            delete, add = await asyncio.to_thread(difference, self._ledger, kernel or {})
            names = sorted({one.set for one in (*delete, *add)})
            found = [f"{len(delete)} elements too many, {len(add)} missing in {', '.join(names)}"] if names else []
        if deep and not found:
            self._seen = generation
        return found

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        return stale_flows(desired, flows)

    def blame(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        element = error.element if isinstance(error, NftError) else None
        if element is None:
            return None
        for name, port in desired.ports.items():
            planned = port_elements(port, desired.endpoints.get(name, ()), self._facts.ctx)
            if element in planned.shared or any(element in mine for mine in planned.fronts.values()):
                return name
        return None

    async def cleanup(self) -> None:
        self._ledger = None
        await self._table.text(layout.removal_text(self._table.family))

    async def _write_all(self, desired: Desired) -> tuple[Ledger, Delta]:
        ctx = await self._facts.refresh()
        ledger = Ledger()
        delta = await asyncio.to_thread(plan, desired, None, ctx, ledger)
        ledger.take(delta)
        kernel = await self._prepared(ctx)
        delta.delete, delta.add = await asyncio.to_thread(difference, ledger, kernel)
        rules = [*layout.fixed_messages(ctx), *layout.chain_messages(delta.chains, ctx)]
        await self._write_much(rules, delta.delete, delta.add)
        self._rules = await self._table.rules_digest()
        return ledger, delta

    async def _prepared(self, ctx: Context) -> Kernel:
        """The table with its sets and chains is there; what its sets hold."""
        try:
            await self._table.text(layout.table_text(ctx))
            kernel = await self._table.elements(layout.FILLED)
        except NftError as error:
            if not await self._table.exists():
                raise
            # A table of another version, or one that somebody made: nothing of it fits.
            log.warning("%s: %s; the table is made anew", self._table.family, error)
            await self._table.text(layout.removal_text(self._table.family) + layout.table_text(ctx))
            return {}
        return kernel or {}

    async def _write_much(self, rules: list[Message], delete: list[Element], add: list[Element]) -> None:
        if len(add) > _ATOMIC:
            replaced = {(one.set, one.key) for one in delete}
            behind = (layout.ENDPOINTS, layout.HAIRPIN, layout.RANGES)
            first = [one for one in add if one.set in behind and (one.set, one.key) not in replaced]
            await self._table.write([], first, atomic=False)
            written = set(first)
            add = [one for one in add if one not in written]
        await self._table.write(delete, add, rules=rules)

    async def _write_some(self, desired: Desired, changed: frozenset[ServicePortName], ledger: Ledger) -> Delta:
        ctx = self._facts.ctx
        if len(changed) > _INLINE_PORTS:
            delta = await asyncio.to_thread(plan, desired, changed, ctx, ledger)
        else:
            delta = plan(desired, changed, ctx, ledger)
        rules = layout.chain_messages(delta.chains, ctx)
        if rules or delta.delete or delta.add:
            await self._table.write(delta.delete, delta.add, rules=rules)
        if rules:
            self._rules = await self._table.rules_digest()
        ledger.take(delta)
        return delta

    async def _forget_clients(self, ledger: Ledger) -> None:
        """After the endpoints are gone, so that nobody is remembered with them anew."""
        remembered = (await self._table.elements((layout.AFFINITY,)) or {}).get(layout.AFFINITY)
        for one in stale_clients(ledger.ports.values(), remembered or ()):
            try:
                await self._table.write([one], [])
            except NftError as error:
                if error.code != errno.ENOENT:  # expired meanwhile
                    raise


def _report(ledger: Ledger, delta: Delta, full: bool) -> SyncReport:
    return SyncReport(
        full,
        no_local_internal=ledger.no_local_internal,
        no_local_external=ledger.no_local_external,
        problems=tuple(delta.problems),
    )
