"""Which iptables this machine has, and how chains look in its kernel. Decides nothing."""

from __future__ import annotations

from collections.abc import Sequence

from agent.node.model import WatchedChains
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
    return NodeTables(found, GenerationReader(), _Fingerprints())


async def _unknown(_: Sequence[WatchedChains]) -> None:
    return None


class _Fingerprints:
    """Asks the kernel over netlink, as the nft variant's chains are those of nftables."""

    def __init__(self) -> None:
        self._tables: dict[tuple[Family, str], NftTable[Family]] = {}

    async def __call__(self, wanted: Sequence[WatchedChains]) -> object:
        """Raises NftError."""
        seen: list[object] = []
        for one in wanted:
            key = one.family, one.table
            if key not in self._tables:
                self._tables[key] = NftTable(*key)
            table = self._tables[key]
            seen.append(await table.chains(one.chains))
            if one.rules:
                seen.append(await table.digests(one.rules))
        return seen
