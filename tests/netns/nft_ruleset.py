"""Writes the Services of a golden case in nftables mode into this network namespace, and prints nft's list (JSON)."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from nodelib import command
from nodelib.firewall.objects import Family
from nodelib.nft.edge import NftTable
from proxy.backends.context import NodeContext
from proxy.backends.nftables import NftablesBackend
from proxy.plan.nftables.layout import TABLE
from tests.golden.proxy.cases import CASES
from tests.unit.proxy.build import NODE_IP, desired


async def main(name: str) -> None:
    case = next(one for one in CASES if one.name == name)
    ctx = replace(case.ctx, node_port_ips=(NODE_IP,))
    backend = NftablesBackend(NftTable(Family.IPV4, TABLE), NodeContext(ctx))
    await backend.sync(desired(*case.objects()), None)
    print((await command.run(["nft", "-j", "list", "ruleset"])).text)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
