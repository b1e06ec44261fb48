"""Which iptables this machine has, and how the kubelet's chains look in its kernel. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

from agent.node.plan import util_chains as plan
from agent.node.ports import NodeTables
from nodelib.errors import NotFound
from nodelib.firewall.iptables import Iptables
from nodelib.firewall.objects import Family
from nodelib.firewall.variant import detect
from nodelib.nft.edge import NftTable
from nodelib.nft.generation import GenerationReader


async def find_tables() -> NodeTables:
    """Raises NotFound when there is no iptables, or when the kernel cannot serve IPv4 through it."""
    variant = await detect()
    found: dict[Family, Iptables] = {}
    for family in Family:
        tables = Iptables(family, variant)
        try:
            await tables.present()
        except NotFound:
            if family is Family.IPV4:
                raise
            continue
        found[family] = tables
    if variant.name == "legacy":
        return NodeTables(found, lambda: None, _unknown)
    return NodeTables(found, GenerationReader(), _Glance(found))


async def _unknown() -> None:
    return None


class _Glance:
    """Asks the kernel over netlink, as the nft variant's chains are those of nftables."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._tables = [NftTable(family, table) for family in families for table in plan.TABLES]

    async def __call__(self) -> object:
        """Which of the chains there are, and digests of the rules that are compared. Raises NftError."""
        seen: list[object] = []
        for table in self._tables:
            seen.append(await table.chains(plan.chains(table.name)))
            if table.name == "filter" and table.family is Family.IPV4:
                seen.append(await table.digests(plan.READ))
        return seen
