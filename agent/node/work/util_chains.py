"""Keeps the kubelet's own chains in iptables (makeIPTablesUtilChains; upstream pkg/kubelet/kubelet_network_linux.go).

Upstream looks for its canary once a minute, and only for that. Here the rules themselves are compared, and where the
kernel counts changes of its ruleset they are looked at within seconds of one, and not at all without one. Most changes
are the proxy's, and a fingerprint of the chains, read over netlink, shows that ours are as they were: with the tools
it takes nine processes, and the event loop stands still while each begins.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from agent.node.plan import util_chains as plan
from agent.node.ports import NodeTables
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, NotFound
from nodelib.firewall.iptables import Tables
from nodelib.firewall.objects import Change, Family, TableContent

log = logging.getLogger(__name__)

CHECK = 10.0  # seconds between two looks at the kernel's count of changes
UNCOUNTED_CHECK = 60.0  # the same, in seconds, where the kernel does not count: as upstream


class UtilChains:
    """`find` raises NotFound on a machine without iptables: then there is nothing to do, as upstream."""

    def __init__(self, find: Callable[[], Awaitable[NodeTables]], clock: Clock) -> None:
        self._find = find
        self._clock = clock
        self._problem = ""
        self._last_good: object | None = None  # fingerprint of the chains when nothing was missing

    async def run(self) -> None:
        """Until cancelled. A failure is logged once per cause and tried again."""
        seen: int | None = None
        found: NodeTables | None = None
        while True:
            try:
                found = found or await self._find()
                generation = found.generation()
                if generation is None or generation != seen:
                    # A change of our own counts too: it is looked at once more.
                    seen = None if await self._look(found) else generation
                self._problem = ""
            except NotFound as error:
                log.info("No iptables support on this system; not creating the %s chain: %s", plan.HINT, error)
                await asyncio.Event().wait()
            except NodewrightError as error:
                self._failed(str(error))
            await self._clock.sleep(CHECK if found is None or found.generation() is not None else UNCOUNTED_CHECK)

    async def _look(self, found: NodeTables) -> bool:
        """Whether anything was missing, and is written now. Raises RestoreError, CommandError, NftError."""
        wanted = plan.watched_chains(found.tables)
        before = await found.fingerprint(wanted)
        if before is not None and before == self._last_good:
            return False
        self._last_good = None
        if await self._keep(found.tables):
            return True
        self._last_good = before if await found.fingerprint(wanted) == before else None
        return False

    async def _keep(self, tables: Mapping[Family, Tables]) -> bool:
        """Write what is missing; whether anything was. Raises RestoreError, CommandError."""
        wrote = False
        for family, one in tables.items():
            change = await _missing(family, one)
            if change:
                await one.restore(change)
                log.info("%s: the kubelet's chains were missing in iptables and are there now", family)
                wrote = True
        return wrote

    def _failed(self, problem: str) -> None:
        if problem != self._problem:
            log.warning("the kubelet's chains could not be written to iptables, the next try is soon: %s", problem)
        self._problem = problem


async def _missing(family: Family, tables: Tables) -> Change:
    filters, present = TableContent("filter", {}), {}
    for one in plan.watched_chains([family]):
        if one.rules:
            filters = await tables.save(one.table, only=one.rules)
        present[one.table] = frozenset([name for name in one.chains if await tables.chain_exists(one.table, name)])
    return plan.missing(present, filters, family)
