"""Keeps our packet filter rules in the kernel: writes what changed, once for all callers that wait."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from cni.edge import nft as nft_edge
from cni.model import FirewallFacts, HostPort
from cni.plan import iptables, nftables
from nodelib.command import CommandError
from nodelib.firewall.iptables import Iptables
from nodelib.firewall.objects import Family, Jump, TableChange
from nodelib.firewall.variant import detect

log = logging.getLogger(__name__)

FORMS = ("iptables", "nftables")
_NO_NFTABLES = os.strerror(errno.EOPNOTSUPP).encode()
_TOOL = {"iptables": "iptables-restore", "nftables": "nft"}

Facts = Callable[[], tuple[FirewallFacts, ...]]  # one for each address family
ApplyRules = Callable[[tuple[FirewallFacts, ...], bool], Awaitable[None]]  # True: also if nothing changed


class Firewall:
    """`sync()` returns once the kernel has rules that are at least as new as the facts at the time of the call.

    Callers share a write: 200 pods with hostPorts that start together cost two or three transactions, not 200.
    """

    def __init__(
        self,
        facts: Facts,
        apply: ApplyRules,
        ports_changed: Callable[[tuple[HostPort, ...], tuple[HostPort, ...]], Awaitable[None]],
    ) -> None:
        self._facts = facts
        self._apply = apply
        self._ports_changed = ports_changed
        self._ports: tuple[HostPort, ...] = ()
        self._lock = asyncio.Lock()
        self._asked = self._done = 0
        self._applied: tuple[FirewallFacts, ...] | None = None

    async def sync(self, *, audit: bool = False) -> None:
        """Write the rules. `audit`: even if the facts are unchanged. Raises CommandError, RestoreError."""
        self._asked += 1
        ticket = self._asked
        async with self._lock:
            if self._done >= ticket and not audit:
                return
            covered, facts = self._asked, self._facts()
            if audit or facts != self._applied:
                first = self._applied is None
                self._applied = None  # unknown until the write has succeeded
                await self._apply(facts, audit or first)
                ports = tuple(port for item in facts for port in item.host_ports)
                await self._ports_changed(self._ports, ports)
                self._ports = ports  # only now, so that the next sync retries after a failure
                self._applied = facts
            self._done = covered


class Rules(Protocol):
    """One form of the rules in the kernel. Every call raises CommandError or RestoreError."""

    async def apply(self, facts: tuple[FirewallFacts, ...], everything: bool) -> None: ...
    async def remove(self, network: str, bridge: str) -> None: ...


async def rules_for(firewall: str) -> Rules:
    """The rules in the form "nftables" or "iptables"; of iptables, the variant that this machine uses."""
    if firewall == "nftables":
        return NftRules()
    variant = await detect()
    return IptablesRules({4: Iptables(Family.IPV4, variant), 6: Iptables(Family.IPV6, variant)})


async def remove_form(firewall: str, network: str, bridge: str) -> None:
    """Remove the rules of one form; nothing to do on a machine that lacks its tool."""
    if shutil.which(_TOOL[firewall]):
        await (await rules_for(firewall)).remove(network, bridge)


class IptablesRules:
    """The iptables form: our chains are replaced, our jumps kept. `tools`: iptables and ip6tables by IP version."""

    def __init__(self, tools: Mapping[int, Iptables]) -> None:
        self._tools = tools

    async def apply(self, facts: tuple[FirewallFacts, ...], everything: bool) -> None:
        for item in facts:
            await self._apply(self._tools[item.version], item, everything)

    async def _apply(self, tool: Iptables, facts: FirewallFacts, everything: bool) -> None:
        missing: dict[str, tuple[Jump, ...]] = {}
        if everything:
            for table, leads in iptables.jumps(facts).items():
                missing[table] = tuple([lead for lead in leads if not await _has(tool, table, lead)])
        changes = [
            TableChange(table, chains=chains, add_jumps=missing.get(table, ()))
            for table, chains in iptables.chains(facts).items()
        ]
        # The loopback guard (table raw) comes first, so that nothing is reachable before it is guarded.
        await tool.restore(tuple(changes))

    async def remove(self, network: str, bridge: str) -> None:
        for version, tool in self._tools.items():
            facts = FirewallFacts(network, bridge, (), version=version)
            present: dict[str, tuple[Jump, ...]] = {}
            for table, leads in iptables.jumps(facts).items():
                present[table] = tuple([lead for lead in leads if await _has(tool, table, lead)])
            if version == 4 or any(present.values()):  # a machine without ip6tables never had any
                await tool.restore(iptables.removal(facts, present))


async def _has(tool: Iptables, table: str, lead: Jump) -> bool:
    # One -C each: saving a table with a proxy's 10,000 Services in it would take a second.
    return await tool.has_rule(table, lead.chain, lead.rule)


class NftRules:
    """The nftables form: our own table for each family, replaced as a whole in one transaction."""

    async def apply(self, facts: tuple[FirewallFacts, ...], everything: bool) -> None:
        await nft_edge.run("".join(nftables.transaction(item) for item in facts))

    async def remove(self, network: str, bridge: str) -> None:
        try:
            await nft_edge.run(nftables.removal(network))
        except CommandError as error:
            if _NO_NFTABLES not in error.stderr:  # a kernel without them never had any
                raise
