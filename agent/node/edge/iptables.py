"""Which iptables this machine has. Decides nothing."""

from __future__ import annotations

from agent.node.ports import NodeTables
from nodelib.errors import NotFound
from nodelib.firewall.iptables import Iptables
from nodelib.firewall.objects import Family
from nodelib.firewall.variant import detect
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
    return NodeTables(found, (lambda: None) if variant.name == "legacy" else GenerationReader())
