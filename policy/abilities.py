"""What of the kernel's firewall can be used on this node: tried in a table that is removed in the same transaction."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nodelib.errors import NotFound
from nodelib.firewall.objects import Family
from nodelib.nft.actions import Queue
from nodelib.nft.edge import NftError, NftTable
from nodelib.nft.rules import Statement
from policy.model import Address, Resolvers
from policy.plan import cluster_layout, layout, marks

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Abilities:
    """`report`: dropped packets; `marked`: connections have marks.

    `resolvers`: whose DNS answers are held, and how; `no_names`: why none are.
    """

    report: bool
    marked: bool
    resolvers: Resolvers | None
    no_names: str


def families() -> list[Family]:
    return list(Family) if Path("/proc/net/if_inet6").exists() else [Family.IPV4]


async def find(tables: Mapping[Family, NftTable[Family]], servers: tuple[Address, ...]) -> Abilities:
    """`servers`: the cluster's DNS servers. Raises NotFound without nf_tables."""
    try:
        for table in tables.values():
            await table.exists()
    except NftError as error:
        raise NotFound(
            str(error),
            obj="nftables",
            step="check whether it can be used",
            action="Network policies need root and a kernel with nf_tables.",
        ) from error
    refused = await _refused(*layout.REPORTS_STATEMENTS)
    if refused:
        log.info("dropped packets are only counted, the kernel cannot report them: %s", refused)
    unmarked = await _refused(marks.FORGOTTEN)
    if unmarked:
        log.info("each packet meets all rules, the kernel has no marks for connections: %s", unmarked)
        return Abilities(not refused, False, None, "the node's kernel has no marks for connections")
    return Abilities(not refused, True, *await _resolvers(servers))


async def _resolvers(servers: tuple[Address, ...]) -> tuple[Resolvers | None, str]:
    if not servers:
        return None, "the policy daemon was not told the cluster's DNS servers (--cluster-dns)"
    for extension in (False, True):
        if not await _refused(Queue(cluster_layout.QUEUE, extension)):
            return Resolvers(servers, extension), ""
    return None, "the node's kernel cannot hold packets (nfnetlink_queue, and nft_queue or xt_NFQUEUE)"


async def _refused(*statements: Statement) -> str:
    """Why the kernel does not take a rule, "" if it does."""
    try:
        await NftTable(Family.IPV4, layout.PROBE).commit(layout.probe(*statements))
    except NftError as error:
        return str(error)
    return ""
