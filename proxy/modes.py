"""The modes of the proxy: builds the backends of each, and removes what other modes left in the kernel."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from nodelib import command
from nodelib.clock import SystemClock
from nodelib.command import CommandError
from nodelib.errors import NodewrightError, NotFound
from nodelib.firewall.iptables import Iptables
from nodelib.firewall.objects import Family
from nodelib.firewall.traced import TracedTables
from nodelib.firewall.variant import Variant, detect
from nodelib.nft.edge import NftError, NftTable
from nodelib.nft.generation import GenerationReader
from nodelib.nft.traced import TracedTable
from proxy import platform
from proxy.backends.base import Backend
from proxy.backends.context import NodeContext
from proxy.backends.iptables import IptablesBackend
from proxy.backends.nftables import NftablesBackend
from proxy.backends.userspace import UserspaceBackend
from proxy.config import derive
from proxy.config.settings import Settings
from proxy.edge import sysctl
from proxy.edge.relays import Relays
from proxy.plan.context import Context
from proxy.plan.nftables.layout import TABLE

log = logging.getLogger(__name__)

_UPSTREAM_TABLE = "kube-proxy"


async def backends(settings: Settings) -> dict[Family, Backend]:
    """One backend for each address family that this machine can serve. Raises NotFound when it cannot serve IPv4."""
    if settings.mode == "nftables":
        return {family: _nftables(settings, family) for family in await _nft_families()}
    tables = await _iptables_families()
    if settings.mode == "userspace":
        relays = Relays()
        return {family: _userspace(settings, one, relays) for family, one in tables.items()}
    return {family: _iptables(settings, one) for family, one in tables.items()}


async def initialize(settings: Settings, ready: Iterable[Backend]) -> None:
    """What needs root, for a proxy without it that starts later (--init-only). Raises RestoreError, CommandError."""
    platform.set_sysctls(settings)
    for backend in ready:
        if isinstance(backend, IptablesBackend):
            await backend.guard_loopback()


async def remove_other_modes(mode: str) -> bool:
    """Remove the rules of all modes except `mode` ("": of all modes). Live flows go on: conntrack translates them.

    False: something could not be removed, and the log says what.
    """
    removed = True
    if mode != "iptables":
        removed = await _remove_chains(IptablesBackend, b":KUBE-SERVICES ", b":KUBE-PROXY-CANARY ")
    if mode != "userspace":
        removed = await _remove_chains(_userspace_removal, b":KUBE-PORTALS-CONTAINER ") and removed
    tables = (_UPSTREAM_TABLE,) if mode == "nftables" else (TABLE, _UPSTREAM_TABLE)
    return await _remove_tables(tables) and removed


def _iptables(settings: Settings, tables: Iptables) -> Backend:
    return IptablesBackend(
        TracedTables(tables) if settings.tracing.per_million else tables,
        _context(settings, tables.family),
        generation=_generation(tables),
        on_guarded=platform.allow_localnet,
    )


def _userspace(settings: Settings, tables: Iptables, relays: Relays) -> Backend:
    context = _context(settings, tables.family)
    seen = TracedTables(tables) if settings.tracing.per_million else tables
    return UserspaceBackend(seen, context, listen=relays.listen, clock=SystemClock(), generation=_generation(tables))


def _generation(tables: Iptables) -> Callable[[], int | None]:
    """Legacy iptables has no generation number that would show changes."""
    return (lambda: None) if tables.variant.name == "legacy" else GenerationReader()


def _nftables(settings: Settings, family: Family) -> Backend:
    table = NftTable(family, TABLE)
    seen = TracedTable(table) if settings.tracing.per_million else table
    beside = NftTable(family, TABLE)
    return NftablesBackend(seen, _context(settings, family), generation=GenerationReader(), beside=beside)


def _context(settings: Settings, family: Family) -> NodeContext:
    return NodeContext(
        derive.context(settings, family),
        detect_node_cidr=settings.local.mode == "NodeCIDR",
        read_platform=platform.context_reader(settings, family),
    )


async def _iptables_families() -> dict[Family, Iptables]:
    variant: Variant = await detect()
    log.info("iptables: %s (%s)", variant.name or "the default variant", variant.reason)
    found: dict[Family, Iptables] = {}
    for family in _families():
        tables = Iptables(family, variant)
        try:
            await tables.present()
        except NotFound as error:
            if family is Family.IPV4:
                raise
            log.info("only IPv4 is served: %s", error)
            continue
        found[family] = tables
    return found


async def _nft_families() -> list[Family]:
    try:
        done = await command.run(("nft", "--version"))
        for family in _families():
            await NftTable(family, TABLE).exists()
    except (CommandError, NftError) as error:
        raise NotFound(
            str(error),
            obj="nftables",
            step="check whether it can be used",
            action="Install the package nftables and run the proxy as root, on a kernel with nf_tables; "
            "or choose --proxy-mode iptables.",
        ) from error
    log.info("nftables: %s", done.text.strip())
    return _families()


def _families() -> list[Family]:
    if Path("/proc/net/if_inet6").exists() and sysctl.read_int("net/ipv6/conf/all/disable_ipv6") != 1:
        return list(Family)
    log.info("IPv6 is off in this kernel or namespace: only IPv4 is served")
    return [Family.IPV4]


def _userspace_removal(tables: Iptables, context: NodeContext) -> Backend:
    return UserspaceBackend(tables, context, listen=Relays().listen, clock=SystemClock())


async def _remove_chains(build: Callable[[Iptables, NodeContext], Backend], *marks: bytes) -> bool:
    """Remove the chains of one mode, both families, from every iptables variant that has one of `marks`."""
    removed = True
    variants = [variant for variant in ("nft", "legacy") if shutil.which(f"iptables-{variant}-save")]
    if not variants and shutil.which("iptables-save"):
        variants = [""]
    for variant in variants:
        for family in Family:
            tables = Iptables(family, Variant(variant))
            try:
                # Without -t only tables in use are read: naming one would make the legacy tool create it in the kernel.
                done = await command.run((tables.variant.save(family),), timeout=300, check=False)
                if any(b"\n" + mark in done.stdout for mark in marks):
                    await build(tables, NodeContext(Context(family=family))).cleanup()
                    log.info("%s %s: removed", tables.variant.tool(family), family)
            except NodewrightError as error:
                log.error("%s", error)
                removed = False
    return removed


async def _remove_tables(names: tuple[str, ...]) -> bool:
    removed = True
    for name in names:
        for family in Family:
            table = NftTable(family, name)
            try:
                if await table.exists():
                    await table.text(f"delete table {'ip' if family is Family.IPV4 else 'ip6'} {name}\n")
                    log.info("nftables table %s, %s: removed", name, family)
            except NftError as error:
                # Without nf_tables there is no table to remove.
                log.debug("%s", error)
            except NodewrightError as error:
                log.error("%s", error)
                removed = False
    return removed
