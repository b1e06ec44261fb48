"""Asks the kernel for the route of a packet in a namespace, as `ip route get` does. Decides nothing."""

from __future__ import annotations

import errno
import socket
from typing import Any

from controlplane.machine.edge.netlink import Netlink, netlink_error
from nodelib.errors import Temporary
from nodelib.firewall.fib import Route
from nodelib.firewall.trace_model import Packet

# include/uapi/linux/rtnetlink.h
_KINDS = {1: "unicast", 2: "local", 3: "local", 6: "blackhole", 7: "unreachable", 8: "prohibit", 9: "none"}
_ERRORS = {
    errno.ENETUNREACH: "none",
    errno.EHOSTUNREACH: "unreachable",
    errno.EACCES: "prohibit",
    errno.EAGAIN: "none",  # a throw route and nothing after it
    errno.EINVAL: "blackhole",  # or a martian source: the kernel uses one number for both
    errno.EXDEV: "filtered",
}
_STATES = {0x01: "INCOMPLETE", 0x02: "REACHABLE", 0x04: "STALE", 0x08: "DELAY", 0x10: "PROBE", 0x20: "FAILED"}


def ask(netlink: Netlink, space: str, packet: Packet) -> Route:
    """The current route of `packet` in `space`. Raises Temporary with the kernel's reason."""
    family = socket.AF_INET6 if ":" in packet.destination else socket.AF_INET
    what: dict[str, Any] = {"dst": packet.destination, "family": family}
    if packet.mark:
        what["mark"] = packet.mark
    if packet.interface:
        index = netlink.index(space, packet.interface)
        if index is not None:
            what |= {"iif": index, "src": packet.source}
    try:
        found = netlink.socket(space).route("get", **what)[0]
    except netlink_error() as error:
        if error.code not in _ERRORS:
            raise Temporary(
                str(error), obj=f"{space or 'host'}: {packet.destination}", step="ask for a route"
            ) from error
        return Route(_ERRORS[error.code])
    kind = _KINDS.get(int(found["type"]), "unicast")
    if kind not in ("unicast", "local"):  # IPv6 returns the route where IPv4 returns an error
        return Route("none" if found.get_attr("RTA_TABLE") == 0 else kind)
    links = netlink.socket(space).get_links(int(found.get_attr("RTA_OIF") or 0)) if kind == "unicast" else ()
    name = str(links[0].get_attr("IFLA_IFNAME")) if links else ""
    via = str(found.get_attr("RTA_GATEWAY") or "")
    return Route(kind, name, via, _neighbour(netlink, space, via or packet.destination, family, name))


def _neighbour(netlink: Netlink, space: str, address: str, family: int, link: str) -> str:
    index = netlink.index(space, link) if link else None
    if index is None:
        return ""
    for entry in netlink.socket(space).get_neighbours(family=family, ifindex=index):
        if entry.get_attr("NDA_DST") == address:
            return _STATES.get(int(entry["state"]), "")
    return ""
