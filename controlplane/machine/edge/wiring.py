"""How a network namespace is wired, read from its kernel: links, addresses, routes, sysctls. Decides nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.machine.edge.namespaces import entered
from nodelib import command
from nodelib.json_values import objects_in

_TIMEOUT = 20.0
# What decides whether pods' packets are forwarded, filtered and tracked, as proc(5) has it below /proc/sys/net.
SYSCTLS = (
    "ipv4/ip_forward",
    "ipv6/conf/all/forwarding",
    "ipv4/conf/all/rp_filter",
    "ipv4/conf/all/route_localnet",
    "ipv4/conf/all/arp_ignore",
    "bridge/bridge-nf-call-iptables",
    "bridge/bridge-nf-call-ip6tables",
    "netfilter/nf_conntrack_count",
    "netfilter/nf_conntrack_max",
    "netfilter/nf_conntrack_tcp_be_liberal",
    "netfilter/nf_conntrack_tcp_timeout_established",
)
_ROOT = "/proc/sys/net/"


@dataclass(frozen=True, slots=True)
class Wiring:
    """The objects as `ip` and `bridge` print them, and sysctls by their path below /proc/sys/net."""

    links: tuple[dict[str, Any], ...]
    addresses: tuple[dict[str, Any], ...]
    routes: tuple[dict[str, Any], ...]
    forwarding: tuple[dict[str, Any], ...]
    sysctls: dict[str, str]


async def read(net: str) -> Wiring:
    """Of the namespace at the file `net`. Raises CommandError."""
    links, addresses, routes, routes6, forwarding, sysctls = await asyncio.gather(
        _objects(net, ["ip", "-json", "-details", "-statistics", "link", "show"]),
        _objects(net, ["ip", "-json", "address", "show"]),
        _objects(net, ["ip", "-json", "-4", "route", "show"]),
        _objects(net, ["ip", "-json", "-6", "route", "show"]),
        _objects(net, ["bridge", "-json", "fdb", "show"]),
        _said(net, ["grep", "-sH", "", *(f"{_ROOT}{one}" for one in SYSCTLS)]),
    )
    values = dict(line.split(":", 1) for line in sysctls.decode(errors="replace").splitlines() if ":" in line)
    known = {path.removeprefix(_ROOT): value for path, value in values.items()}
    return Wiring(links, addresses, (*routes, *routes6), forwarding, known)


async def table(net: str, family: str, name: str) -> tuple[dict[str, Any], ...]:
    """The objects of one table as in `nft -j list table`; none where there is no such table."""
    found = json.loads(await _said(net, ["nft", "-j", "list", "table", family, name]) or b"{}")
    return tuple(objects_in(found.get("nftables")))


async def _objects(net: str, argv: Sequence[str]) -> tuple[dict[str, Any], ...]:
    return tuple(objects_in(json.loads(await _said(net, argv) or b"[]")))


async def _said(net: str, argv: Sequence[str]) -> bytes:
    # Without IPv6, or without a bridge module, one of them fails, and the others are worth having.
    done = await command.run(entered(net, list(argv)), timeout=_TIMEOUT, check=False)
    return done.stdout
