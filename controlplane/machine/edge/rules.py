"""The current packet rules, addresses and connections of a node, read from its kernel. Decides nothing."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import dataclass, field
from typing import Any

from controlplane.machine.edge.namespaces import entered
from nodelib import command
from nodelib.firewall.objects import TableContent
from nodelib.firewall.parse import parse_tables

_TIMEOUT = 120.0
_TOOLS = {4: ("iptables-nft-save", "iptables-legacy-save"), 6: ("ip6tables-nft-save", "ip6tables-legacy-save")}


@dataclass(frozen=True, slots=True)
class Kernel:
    """iptables' `tables` with counters, `nftables` as in `nft -j list ruleset`, the node's `addresses` and `links`."""

    node: str
    tables: dict[str, TableContent]
    nftables: dict[str, Any]
    addresses: frozenset[str]
    links: frozenset[str]
    notes: tuple[str, ...] = field(default=())


async def read(node: str, net: str, version: int = 4) -> Kernel:
    """Read the node whose network namespace is `net`, for IP version 4 or 6. Raises CommandError."""
    tables: dict[str, TableContent] = {}
    notes: list[str] = []
    found = [tool for tool in _TOOLS[version] if shutil.which(tool)] or ["iptables-save"]
    nft = ["nft", "-j", "list", "ruleset"] if shutil.which("nft") else ["true"]

    async def said(argv: list[str]) -> command.Completed:
        # Rules that could not be read are not the same as none. A kernel without the legacy tables has none.
        return await command.run(entered(net, argv), timeout=_TIMEOUT, check="legacy" not in argv[0])

    # Without -t the legacy tool reads only tables in use; naming a table would create it.
    saved, listed, shown = await asyncio.gather(
        asyncio.gather(*(said([tool, "-c"]) for tool in found)), said(nft), said(["ip", "-json", "address", "show"])
    )
    for tool, done in zip(found, saved, strict=True):
        # Somebody's nft rules in a table of iptables: the tool leaves the whole table out, or the chain.
        unread = [line.lstrip("# ") for line in done.text.splitlines() if line[:1] == "#" and "incompatible" in line]
        notes += [f"{tool}: {line} What it leaves out is not followed." for line in unread]
        for name, content in parse_tables(_without_notes(done.text)).items():
            if name in tables and any(content.chains.values()):
                notes.append(f"{tool}: table {name} also has rules in the other backend; they are not followed")
            tables.setdefault(name, content)
    ruleset: dict[str, Any] = json.loads(listed.stdout or b"{}")
    links = json.loads(shown.stdout)
    addresses = {one["local"] for link in links for one in link.get("addr_info") or []}
    names = frozenset(str(link["ifname"]) for link in links if "ifname" in link)
    return Kernel(node, tables, ruleset, frozenset(addresses), names, tuple(notes))


async def connections(net: str, address: str, version: int = 4) -> list[str]:
    """Lines of conntrack with the original destination `address`. Raises CommandError."""
    argv = ["conntrack", "-L", "-f", f"ipv{version}", "--orig-dst", address]
    done = await command.run(entered(net, argv), timeout=_TIMEOUT, check=False)
    return [line.strip() for line in done.text.splitlines() if line.strip()]


def _without_notes(text: str) -> str:
    """Drop the warnings that iptables-nft-save prints when the legacy tables are in use."""
    return "\n".join([line for line in text.splitlines() if line[:1] in "*:-[#C" or line == "COMMIT"])
