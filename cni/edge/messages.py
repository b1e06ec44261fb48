"""rtnetlink messages: builds them with pyroute2's classes, and reads answers into our values. Decides nothing."""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from typing import Any

from cni.edge.rtnl import ifaddrmsg, ifinfmsg, ndmsg, nlmsg, nlmsgerr, rtmsg
from cni.model import Address, Interface, LinkFacts, Neighbour, Network, Route, RouteFacts, Tunnel

# linux/netlink.h, linux/rtnetlink.h
REQUEST, ACK, DUMP, REPLACE, EXCL, CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
NEWLINK, DELLINK, GETLINK = 16, 17, 18
NEWADDR, DELADDR, GETADDR = 20, 21, 22
NEWROUTE, DELROUTE, GETROUTE = 24, 25, 26
NEWNEIGH, DELNEIGH, GETNEIGH = 28, 29, 30
NEWQDISC, DELQDISC, GETQDISC, NEWTFILTER = 36, 37, 38, 44
MAIN_TABLE, UNICAST = 254, 1
ONLINK = 0x4  # RTNH_F_ONLINK
_LINK_SCOPE, _KERNEL, _BOOT = 253, 2, 3
_IPV6_METRIC = 256  # of an address's route, net/ipv6/ip6_route.h
_IFF_UP, _IFA_F_NODAD = 0x1, 0x2
AF_BRIDGE, _NTF_MASTER, _NUD_NOARP, NUD_PERMANENT = 7, 0x04, 0x40, 0x80  # linux/socket.h, linux/neighbour.h


class tcmsg(nlmsg):  # type: ignore[misc]
    """struct tcmsg with its options as bytes: pyroute2's own class builds rate tables for a clock that it guesses."""

    prefix = "TCA_"
    fields = (("family", "B"), ("pad", "3x"), ("index", "i"), ("handle", "I"), ("parent", "I"), ("info", "I"))
    nla_map = (("TCA_UNSPEC", "none"), ("TCA_KIND", "asciiz"), ("TCA_OPTIONS", "cdata"))


CLASSES = {NEWLINK: ifinfmsg, NEWADDR: ifaddrmsg, NEWROUTE: rtmsg, NEWNEIGH: ndmsg, NEWQDISC: tcmsg}


def link_message(
    kind: int,
    extra: int = 0,
    *,
    flags: int = REQUEST | ACK,
    name: str = "",
    index: int = 0,
    up: bool = False,
    attrs: Sequence[list[Any]] = (),
) -> Any:
    message = ifinfmsg()
    message["index"] = index
    message["flags"] = message["change"] = _IFF_UP if up else 0
    message["attrs"] = [["IFLA_IFNAME", name], *attrs] if name else list(attrs)
    message["header"] = {"type": kind, "flags": flags | extra}
    return message


def address_message(
    kind: int, extra: int = 0, index: int = 0, address: Interface | None = None, *, flags: int = REQUEST | ACK
) -> Any:
    message = ifaddrmsg()
    message["header"] = {"type": kind, "flags": flags | extra}
    if address is not None:
        message["family"] = family(address)
        message["prefixlen"] = address.network.prefixlen
        message["index"] = index
        message["attrs"] = [["IFA_LOCAL", str(address.ip)], ["IFA_ADDRESS", str(address.ip)]]
        if address.version == 6:
            # No other node has this address: duplicate detection would only delay the pod by a second or more.
            message["flags"] = _IFA_F_NODAD
        elif address.network.prefixlen < 31:
            message["attrs"].append(["IFA_BROADCAST", str(address.network.broadcast_address)])
    return message


def route_message(
    kind: int,
    extra: int = 0,
    destination: Network | None = None,
    attrs: Sequence[list[Any]] = (),
    protocol: int = 0,
    *,
    flags: int = REQUEST | ACK,
) -> Any:
    message = rtmsg()
    message["header"] = {"type": kind, "flags": flags | extra}
    if destination is not None:
        message["family"] = family(destination)
        message["dst_len"] = destination.prefixlen
        message["table"], message["type"], message["proto"] = MAIN_TABLE, UNICAST, protocol
        message["attrs"] = list(attrs)
    return message


def pod_route(route: Route, index: int) -> Any:
    attrs: list[list[Any]] = [["RTA_OIF", index]]
    if route.destination.prefixlen:
        attrs.append(["RTA_DST", str(route.destination.network_address)])
    if route.gateway is not None:
        attrs.append(["RTA_GATEWAY", str(route.gateway)])
    message = route_message(NEWROUTE, CREATE | REPLACE, route.destination, attrs, _BOOT)
    if route.gateway is None:
        message["scope"] = _LINK_SCOPE
    return message


def connected_route(address: Interface, index: int) -> Any:
    """The kernel's own for an address (fib_add_ifaddr, addrconf_prefix_route)."""
    attrs: list[list[Any]] = [["RTA_DST", str(address.network.network_address)], ["RTA_OIF", index]]
    if address.version == 4:
        attrs.append(["RTA_PREFSRC", str(address.ip)])
    else:
        attrs.append(["RTA_PRIORITY", _IPV6_METRIC])
    message = route_message(NEWROUTE, CREATE | REPLACE, address.network, attrs, _KERNEL)
    if address.version == 4:
        message["scope"] = _LINK_SCOPE
    return message


def info(kind_name: str, kind: str, data_name: str, attr: str, value: Any) -> list[Any]:
    return ["IFLA_LINKINFO", {"attrs": [[kind_name, kind], [data_name, {"attrs": [[attr, value]]}]]}]


def bridge_port(attrs: list[list[Any]]) -> list[Any]:
    """What a link is as a port of a bridge (IFLA_BRPORT_…)."""
    return [
        "IFLA_LINKINFO",
        {"attrs": [["IFLA_INFO_SLAVE_KIND", "bridge"], ["IFLA_INFO_SLAVE_DATA", {"attrs": attrs}]]},
    ]


def bridge_entry(port: int, mac: str) -> Any:
    """A static forwarding entry of the bridge whose port the link with index `port` is: `mac` is behind it."""
    message = ndmsg()
    message["header"] = {"type": NEWNEIGH, "flags": REQUEST | ACK | CREATE | REPLACE}
    message["ifindex"], message["family"] = port, AF_BRIDGE
    # NUD_PERMANENT would make it an address of the bridge itself.
    message["flags"], message["state"] = _NTF_MASTER, _NUD_NOARP
    message["attrs"] = [["NDA_LLADDR", mac]]
    return message


def peer(attrs: list[list[Any]]) -> dict[str, Any]:
    return {"index": 0, "flags": 0, "change": 0, "attrs": attrs}


def family(value: Address | Interface | Network) -> int:
    return int(socket.AF_INET if value.version == 4 else socket.AF_INET6)


def neighbour_message(kind: int, extra: int, index: int, entry: Neighbour) -> Any:
    """A permanent entry of a link; the kernel does not count these against its limits."""
    message = ndmsg()
    message["header"] = {"type": kind, "flags": REQUEST | ACK | extra}
    message["ifindex"], message["family"] = index, family(entry.address)
    message["state"] = NUD_PERMANENT
    message["attrs"] = [["NDA_DST", str(entry.address)], ["NDA_LLADDR", entry.mac]]
    return message


def refusal(data: bytes) -> tuple[int, str]:
    code = -struct.unpack_from("=i", data, 16)[0]
    if not code:
        return 0, ""
    message = nlmsgerr(data)
    message.decode()
    return code, str(message.get_attr("NLMSGERR_ATTR_MSG") or "")


def decode(kind: int, data: bytes) -> Any:
    message = CLASSES[kind](data)
    message.decode()
    return message


def link_facts(message: Any) -> LinkFacts:
    info = message.get_attr("IFLA_LINKINFO")
    return LinkFacts(
        index=int(message["index"]),
        name=str(message.get_attr("IFLA_IFNAME")),
        kind=str((info.get_attr("IFLA_INFO_KIND") if info else "") or ""),
        mac=str(message.get_attr("IFLA_ADDRESS") or ""),
        mtu=int(message.get_attr("IFLA_MTU") or 0),
        up=bool(message["flags"] & _IFF_UP),
        master=int(message.get_attr("IFLA_MASTER") or 0),
        tunnel=_tunnel(info) if info and info.get_attr("IFLA_INFO_KIND") == "vxlan" else None,
    )


def _tunnel(info: Any) -> Tunnel | None:
    data = info.get_attr("IFLA_INFO_DATA")
    local = data.get_attr("IFLA_VXLAN_LOCAL") or data.get_attr("IFLA_VXLAN_LOCAL6")
    if local is None:
        return None  # somebody else's, without a local address
    return Tunnel(int(data.get_attr("IFLA_VXLAN_ID")), int(data.get_attr("IFLA_VXLAN_PORT")), ip_address(local))


def route_facts(message: Any) -> RouteFacts:
    anywhere = "0.0.0.0" if message["family"] == socket.AF_INET else "::"
    gateway = message.get_attr("RTA_GATEWAY")
    return RouteFacts(
        destination=ip_network(f"{message.get_attr('RTA_DST') or anywhere}/{message['dst_len']}"),
        gateway=ip_address(gateway) if gateway else None,
        link=int(message.get_attr("RTA_OIF") or 0),
        protocol=int(message["proto"]),
    )
