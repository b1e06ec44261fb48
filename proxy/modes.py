"""The modes of the proxy: the backends each is made of, and how what another mode left is removed."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from nodelib import command
from nodelib.clock import SystemClock
from nodelib.command import CommandError
from nodelib.errors import NodewrightError, NotFound
from nodelib.firewall.backend import Backend as Variant
from nodelib.firewall.backend import detect
from nodelib.firewall.generation import read_generation
from nodelib.firewall.iptables import Iptables
from nodelib.firewall.objects import Family
from nodelib.nft.edge import NftError, NftTable
from proxy import derive, machine
from proxy.backends.base import Backend
from proxy.backends.facts import ContextOfNode
from proxy.backends.iptables import IptablesBackend
from proxy.backends.nftables import NftablesBackend
from proxy.backends.userspace import UserspaceBackend
from proxy.edge import relay, sysctl
from proxy.plan.context import Context
from proxy.plan.nftables.layout import TABLE
from proxy.settings import Settings

log = logging.getLogger(__name__)

_UPSTREAM_TABLE = "kube-proxy"


async def backends(settings: Settings) -> dict[Family, Backend]:
    """One for each family that can be served here. Raises NotFound when IPv4 cannot."""
    if settings.mode == "nftables":
        return {family: _nftables(settings, family) for family in await _nft_families()}
    tables = await _iptables_families()
    build = _userspace if settings.mode == "userspace" else _iptables
    return {family: build(settings, one) for family, one in tables.items()}


async def remove_others(mode: str) -> bool:
    """What modes other than `mode` ("": every mode's) left. Flows that live go on: their translation is in conntrack.

    False when something could not be removed; it is in the log.
    """
    well = True
    if mode != "iptables":
        well = await _remove_chains(IptablesBackend, b":KUBE-SERVICES ", b":KUBE-PROXY-CANARY ")
    if mode != "userspace":
        well = await _remove_chains(_userspace_removal, b":KUBE-PORTALS-CONTAINER ") and well
    tables = (_UPSTREAM_TABLE,) if mode == "nftables" else (TABLE, _UPSTREAM_TABLE)
    return await _remove_tables(tables) and well


def _iptables(settings: Settings, tables: Iptables) -> Backend:
    return IptablesBackend(tables, _facts(settings, tables.family), generation=_generation(tables))


def _userspace(settings: Settings, tables: Iptables) -> Backend:
    facts = _facts(settings, tables.family)
    return UserspaceBackend(tables, facts, listen=relay.listen, clock=SystemClock(), generation=_generation(tables))


def _generation(tables: Iptables) -> Callable[[], int | None]:
    """The legacy tables have no generation that tells of changes."""
    return (lambda: None) if tables.backend.variant == "legacy" else read_generation


def _nftables(settings: Settings, family: Family) -> Backend:
    return NftablesBackend(NftTable(family, TABLE), _facts(settings, family), generation=read_generation)


def _facts(settings: Settings, family: Family) -> ContextOfNode:
    return ContextOfNode(
        derive.context(settings, family),
        detect_node_cidr=settings.local.mode == "NodeCIDR",
        refine=machine.refiner(settings, family),
    )


async def _iptables_families() -> dict[Family, Iptables]:
    variant: Variant = await detect()
    log.info("iptables: %s (%s)", variant.variant or "the default variant", variant.reason)
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
            step="look whether it can be used",
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


def _userspace_removal(tables: Iptables, facts: ContextOfNode) -> Backend:
    return UserspaceBackend(tables, facts, listen=relay.listen, clock=SystemClock())


async def _remove_chains(build: Callable[[Iptables, ContextOfNode], Backend], *marks: bytes) -> bool:
    """Those of one mode, of both families, in every variant of iptables that has one of `marks`."""
    well = True
    variants = [variant for variant in ("nft", "legacy") if shutil.which(f"iptables-{variant}-save")]
    if not variants and shutil.which("iptables-save"):
        variants = [""]
    for variant in variants:
        for family in Family:
            tables = Iptables(family, Variant(variant))
            try:
                # Without -t only tables in use are read: naming one would make the legacy tool create it in the kernel.
                done = await command.run((tables.backend.save(family),), timeout=300, check=False)
                if any(b"\n" + mark in done.stdout for mark in marks):
                    await build(tables, ContextOfNode(Context(family=family))).cleanup()
                    log.info("%s %s: removed", tables.backend.tool(family), family)
            except NodewrightError as error:
                log.error("%s", error)
                well = False
    return well


async def _remove_tables(names: tuple[str, ...]) -> bool:
    well = True
    for name in names:
        for family in Family:
            table = NftTable(family, name)
            try:
                if await table.exists():
                    await table.text(f"delete table {'ip' if family is Family.IPV4 else 'ip6'} {name}\n")
                    log.info("nftables table %s, %s: removed", name, family)
            except NftError as error:
                # Without nf_tables there is nothing of it.
                log.debug("%s", error)
            except NodewrightError as error:
                log.error("%s", error)
                well = False
    return well
