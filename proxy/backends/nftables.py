"""The nftables mode: walks the plans of proxy.plan.nftables, one netlink batch per sync."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial

from nodelib.errors import NodewrightError
from nodelib.netlink.flows import UdpFlow
from nodelib.nft.edge import NftError, Table, digest_of
from nodelib.nft.wire import Element, Message
from nodelib.threads import in_thread_if
from nodelib.traces.steps import step
from proxy.backends.base import SyncReport
from proxy.backends.beside import planned
from proxy.backends.context import NodeBackend, NodeContext
from proxy.model import Desired, ServicePortName
from proxy.plan.conntrack import stale_flows
from proxy.plan.context import Context
from proxy.plan.nftables import layout
from proxy.plan.nftables.affinity import forgotten, losing_frontends, stale_clients
from proxy.plan.nftables.ports import Frontend, port_elements
from proxy.plan.nftables.sync import AppliedState, Delta, Kernel, difference, plan

log = logging.getLogger(__name__)

# A first sync with more elements than this is sent in parts, endpoints before the frontends that lead to them.
_ATOMIC = 20_000
# On-demand chains that are not worth a look at which of them nobody uses any more. There may be one for each second of
# an affinity and each number of endpoints, and all of them are read in every audit.
_FEW_CHAINS = 1000
_FEW_FRONTENDS = 100
# A client has another endpoint by now; ENFILE: it has expired, and others have filled the map since.
_ANOTHER = (errno.EBUSY, errno.EEXIST, errno.ENOENT, errno.ENFILE)
_CLIENTS = 512  # whose endpoint is gone, that are forgotten in one transaction


class NftablesBackend(NodeBackend):
    """One address family.

    The kernel is read only for a full sync, for an audit, and, beside syncs, after a Service with affinity lost an
    endpoint.
    """

    def __init__(
        self,
        table: Table,
        context: NodeContext,
        *,
        generation: Callable[[], int | None] = lambda: None,
        beside: Table | None = None,
    ) -> None:
        """`beside`: the same table, for what takes long: reading it does not keep rules waiting."""
        self._table, self._beside = table, beside or table
        super().__init__(context)
        self._generation = generation
        self._applied: AppliedState | None = None
        self._seen: int | None = None
        self._rules = ""
        self._tolerated = _FEW_CHAINS
        self._writing = asyncio.Lock()
        self._losing: set[Frontend] | None = None  # whose clients may have an endpoint that is gone; None: all

    mode = "nftables"

    def service_cidrs_changed(self, cidrs: tuple[str, ...]) -> bool:
        return self._context.service_cidrs_changed(cidrs)

    async def sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        """Raises NftError or CommandError; a transaction that fails changes nothing."""
        async with self._writing:
            return await self._sync(desired, changed)

    async def _sync(self, desired: Desired, changed: frozenset[ServicePortName] | None) -> SyncReport:
        applied = self._applied
        # A commit of somebody else since the last sync must not pass for ours: then the next audit reads the kernel.
        alone = changed is None or applied is None or self._generation() == self._seen
        # Unknown until everything is written: a plan that failed half-way leaves a state that only a full sync repairs.
        self._applied = None
        if changed is None or applied is None:
            applied, delta = await self._write_all(desired)
            full = True
        else:
            full, delta = False, await self._write_some(desired, changed, applied)
        self._applied = applied
        self._seen = self._generation() if alone else None
        if full:
            self._losing = None
        else:
            many = len(delta.owner) > _FEW_FRONTENDS
            losing = await in_thread_if(many, losing_frontends, delta, applied)
            if self._losing is not None:  # by now
                self._losing |= losing
        return _report(applied, delta, full)

    async def forget_clients(self) -> None:
        """Raises NftError. There may be a quarter of a million clients, of all Services together."""
        if self._losing is not None and not self._losing:
            return
        losing, self._losing = self._losing, set()
        try:
            recorded = (await self._beside.elements((layout.AFFINITY,)) or {}).get(layout.AFFINITY) or set()
            async with self._writing:  # what is recorded is of rules that are known now
                applied = self._applied
            if applied is None:  # a full sync follows
                self._losing = None
                return
            owners, ports = dict(applied.owner), dict(applied.ports)
            stale = await asyncio.to_thread(stale_clients, losing, owners, ports, recorded)
            for start in range(0, len(stale), _CLIENTS):
                await self._forget(stale[start : start + _CLIENTS])
        except BaseException:
            self._losing = None
            raise

    async def audit(self, *, deep: bool) -> list[str]:
        """Read nothing as long as the ruleset's generation is unchanged. Raises NftError.

        Rules do not wait for it: half a million elements take ten seconds. What it finds while some are written is
        nothing; the caller knows.
        """
        generation, applied = self._generation(), self._applied
        if applied is None or (generation is not None and generation == self._seen):
            return []
        found = []
        if await self._beside.rules_digest() != self._rules:
            found.append(f"the rules of table {layout.TABLE} are not ours any more")
        elif deep:
            kernel = await self._beside.elements(layout.FILLED)
            async with self._writing:
                if self._applied is None:  # a full sync follows
                    return []
                applied = self._applied.copy()
            delete, add = await asyncio.to_thread(difference, applied, kernel or {})
            names = sorted({one.set for one in (*delete, *add)})
            found = [f"{len(delete)} elements too many, {len(add)} missing in {', '.join(names)}"] if names else []
        if deep and not found:
            self._seen = generation
        return found

    def stale_flows(self, desired: Desired, flows: Iterable[UdpFlow]) -> list[UdpFlow]:
        return stale_flows(desired, flows)

    def refused_port(self, error: NodewrightError, desired: Desired) -> ServicePortName | None:
        element = error.element if isinstance(error, NftError) else None
        if element is None:
            return None
        for name, port in desired.ports.items():
            known = port_elements(port, desired.endpoints.get(name, ()), self._context.ctx)
            if element in known.shared or any(element in mine for mine in known.frontends.values()):
                return name
        return None

    async def cleanup(self) -> None:
        self._applied = None
        await self._table.text(layout.removal_text(self._table.family))

    async def _write_all(self, desired: Desired) -> tuple[AppliedState, Delta]:
        ctx = await self._context.refresh()
        applied = AppliedState()
        with step("plan"):
            delta = await asyncio.to_thread(plan, desired, None, ctx, applied)
        applied.commit(delta)
        kernel = await self._prepared(ctx)
        with step("plan"):
            delta.delete, delta.add = await asyncio.to_thread(difference, applied, kernel)
        rules = [*layout.fixed_messages(ctx), *layout.chain_messages(delta.chains, ctx)]
        await self._write_much(rules, delta.delete, delta.add)
        there = await self._table.digests()
        removed = await self._remove_unused(there.keys() - layout.fixed_chains(ctx).keys(), applied)
        self._rules = digest_of({name: digest for name, digest in there.items() if name not in removed})
        return applied, delta

    async def _remove_unused(self, there: Set[str], applied: AppliedState) -> Set[str]:
        """Remove the on-demand chains of these that no port uses, and return them. They do no harm, so that a refusal
        is none either."""
        needed = await asyncio.to_thread(applied.needed_chains)
        self._tolerated = max(_FEW_CHAINS, 2 * len(needed))
        if unused := there - needed:
            try:
                await self._table.write([], [], rules=layout.removal_messages(sorted(unused)))
            except NftError as error:
                log.warning("%s: %d chains that nothing uses stay: %s", self._table.family, len(unused), error)
                self._tolerated = max(self._tolerated, 2 * len(applied.chains))
                return frozenset()
            applied.chains -= unused
        return unused

    async def _prepared(self, ctx: Context) -> Kernel:
        """Create the table, its sets and its chains where they are missing; the elements that the sets hold."""
        try:
            await self._table.text(layout.table_text(ctx))
            kernel = await self._table.elements(layout.FILLED)
        except NftError as error:
            if not await self._table.exists():
                raise
            # A table of another version of this program, or of somebody else: nothing in it fits.
            log.warning("%s: %s; the table is made again from scratch", self._table.family, error)
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

    async def _write_some(self, desired: Desired, changed: frozenset[ServicePortName], applied: AppliedState) -> Delta:
        ctx = self._context.ctx
        work = partial(plan, desired, changed, ctx, applied)
        with step("plan"):
            delta = await planned(work, ports=len(changed), size=lambda: desired.size(changed) + applied.size(changed))
        rules = layout.chain_messages(delta.chains, ctx)
        if rules or delta.delete or delta.add:
            await self._table.write(delta.delete, delta.add, rules=rules)
        applied.commit(delta)
        if rules:
            if len(applied.chains) > self._tolerated:
                await self._remove_unused(applied.chains, applied)
            self._rules = await self._table.rules_digest()
        return delta

    async def _forget(self, stale: Sequence[Element]) -> None:
        rules, delete = forgotten(stale)
        try:
            await self._beside.write(delete, [], rules=rules)
        except NftError as error:
            if error.code not in _ANOTHER:
                raise
            for half in (stale[: len(stale) // 2], stale[len(stale) // 2 :]) if len(stale) > 1 else ():
                await self._forget(half)


def _report(applied: AppliedState, delta: Delta, full: bool) -> SyncReport:
    return SyncReport(
        full,
        no_local_internal=applied.no_local_internal,
        no_local_external=applied.no_local_external,
        problems=tuple(delta.problems),
    )
