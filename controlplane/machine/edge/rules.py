"""The current packet rules, addresses and connections of a node, read from its kernel. Decides nothing."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from controlplane.machine.edge import nsinit
from controlplane.machine.edge.namespaces import entered
from nodelib import command
from nodelib.errors import Temporary
from nodelib.firewall.objects import TableContent
from nodelib.firewall.parse import parse_tables
from nodelib.nft.tables import tables

_TIMEOUT = 120.0  # seconds
_OF_RULES = 45.0  # iptables takes four times as long for twice as many chains; 20,000 of them take six seconds
_MOST_TABLES = 64
# As nft reads names. It joins its arguments to one line of commands; over netlink a table may have any name.
_NAME = re.compile(r"[A-Za-z_.][A-Za-z0-9_./-]*")
_IPTABLES = frozenset({"raw", "mangle", "nat", "filter", "security"})  # as iptables' tool shows them
_TOOLS = {4: ("iptables-nft-save", "iptables-legacy-save"), 6: ("ip6tables-nft-save", "ip6tables-legacy-save")}


_TOO_MANY = (
    "So many rules in iptables mode come from Services with very many ports, endpoints and externalIPs: "
    "find them by `kubectl get services --all-namespaces`."
)


@dataclass(frozen=True, slots=True)
class Kernel:
    """iptables' `tables` with counters, the other `nftables` as in `nft -j list ruleset`, the node's `addresses` and
    `links`."""

    node: str
    tables: dict[str, TableContent]
    nftables: dict[str, Any]
    addresses: frozenset[str]
    links: frozenset[str]
    notes: tuple[str, ...] = field(default=())


async def read(node: str, net: str, version: int = 4) -> Kernel:
    """Read the node whose network namespace is `net`, for IP version 4 or 6. Raises Temporary."""
    found_tables: dict[str, TableContent] = {}
    notes: list[str] = []
    found = [tool for tool in _TOOLS[version] if shutil.which(tool)] or ["iptables-save"]

    async def said(argv: list[str]) -> command.Completed:
        # Rules that could not be read are not the same as none. A kernel without the legacy tables has none.
        try:
            return await command.run(entered(net, argv), timeout=_OF_RULES, check="legacy" not in argv[0])
        except command.CommandError as error:
            if error.returncode is None:
                error.obj, error.action = f"the rules of {node}", _TOO_MANY
            raise

    # Without -t the legacy tool reads only tables in use; naming a table would create it.
    saved, (listed, left_out), shown = await asyncio.gather(
        asyncio.gather(*(said([tool, "-c"]) for tool in found)),
        _nftables(net, version),
        said(["ip", "-json", "address", "show"]),
    )
    if left_out:
        why = f"nft cannot be given their names, or there are more than {_MOST_TABLES}"
        notes.append(f"nft: tables that are not followed: {left_out}; {why}")
    for tool, done in zip(found, saved, strict=True):
        # Somebody's nft rules in a table of iptables: the tool leaves the whole table out, or the chain.
        unread = [line.lstrip("# ") for line in done.text.splitlines() if line[:1] == "#" and "incompatible" in line]
        notes += [f"{tool}: {line} What it leaves out is not followed." for line in unread]
        for name, content in parse_tables(_without_notes(done.text)).items():
            if name in found_tables and any(content.chains.values()):
                notes.append(f"{tool}: table {name} also has rules in the other backend; they are not followed")
            found_tables.setdefault(name, content)
    links = json.loads(shown.stdout)
    addresses = {one["local"] for link in links for one in link.get("addr_info") or []}
    names = frozenset(str(link["ifname"]) for link in links if "ifname" in link)
    return Kernel(node, found_tables, listed, frozenset(addresses), names, tuple(notes))


async def _nftables(net: str, version: int) -> tuple[dict[str, Any], int]:
    """The tables of one IP version, and how many were left out. Without those of iptables, of which nft makes gigabytes
    where a Service has thousands of ports."""
    if not shutil.which("nft"):
        return {}, 0
    family = "ip" if version == 4 else "ip6"
    wanted = [
        one for one in await _table_names(net) if one[0] == "inet" or (one[0] == family and one[1] not in _IPTABLES)
    ]
    followed = [one for one in wanted if _NAME.fullmatch(one[1])][:_MOST_TABLES]
    listed: list[Any] = []
    for one in followed:
        done = await command.run(entered(net, ["nft", "-j", "list", "table", *one]), timeout=_OF_RULES, check=False)
        if done.returncode and b"No such file" not in done.stderr:  # it is gone since
            raise command.CommandError(done.argv, done.returncode, done.stderr)
        listed += json.loads(done.stdout or b"{}").get("nftables") or []
    return {"nftables": listed}, len(wanted) - len(followed)


async def _table_names(net: str) -> list[tuple[str, str]]:
    def read() -> list[tuple[str, str]]:
        nsinit.setns(net, "net")
        return tables()

    with ThreadPoolExecutor(1) as thread:  # which ends in the other namespace
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, read)
        except OSError as error:
            raise Temporary(str(error), obj=net, step="list the tables of nftables") from error


async def connections(net: str, address: str, version: int = 4) -> list[str]:
    """Lines of conntrack with the original destination `address`. Raises CommandError."""
    argv = ["conntrack", "-L", "-f", f"ipv{version}", "--orig-dst", address]
    done = await command.run(entered(net, argv), timeout=_TIMEOUT, check=False)
    return [line.strip() for line in done.text.splitlines() if line.strip()]


def _without_notes(text: str) -> str:
    """Drop the warnings that iptables-nft-save prints when the legacy tables are in use."""
    return "\n".join([line for line in text.splitlines() if line[:1] in "*:-[#C" or line == "COMMIT"])
