"""rtnetlink through pyroute2's messages, several requests in one datagram. Decides nothing.

Why not pyroute2.IPRoute: measured here, IPRoute(netns=...) costs 18 ms and a fork of the whole process for the
socket alone, and each call runs an event loop (0.4 to 2 ms). A socket of our own in the right namespace and
requests in batches do a whole ADD in 3 to 5 ms; the messages are pyroute2's all the same.

A `Netlink` belongs to the thread that uses it, and never changes that thread's namespace (see `edge.netns`).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Sequence
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Self

from pyroute2.netlink import nlmsgerr
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from cni.edge.netns import in_namespace
from cni.model import Interface, LinkFacts, LinkPlan, Network, NodeRoute, Route, RouteFacts
from nodelib.errors import Conflict, NodewrightError, NotFound, Permanent, Temporary

# linux/netlink.h, linux/rtnetlink.h
_REQUEST, _ACK, _DUMP, _REPLACE, _EXCL, _CREATE, _DUMP_INTR = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400, 0x10
_ERROR, _DONE = 2, 3
_NEWLINK, _DELLINK, _GETLINK = 16, 17, 18
_NEWADDR, _DELADDR, _GETADDR = 20, 21, 22
_NEWROUTE, _DELROUTE, _GETROUTE = 24, 25, 26
_IFF_UP, _IFA_F_NODAD = 0x1, 0x2
_SOL_NETLINK, _EXT_ACK, _STRICT_CHECK = 270, 11, 12
_MAIN_TABLE, _UNICAST, _LINK_SCOPE, _BOOT = 254, 1, 253, 3
_LOOPBACK_INDEX = 1
_HEADER = struct.Struct("=IHHII")
_ANSWER_SECONDS = 30
_DUMP_TRIES = 8

_CLASSES = {_NEWLINK: ifinfmsg, _NEWADDR: ifaddrmsg, _NEWROUTE: rtmsg}


class Netlink:
    """One rtnetlink socket in the namespace `netns` (a descriptor; None: the caller's own)."""

    def __init__(self, netns: int | None = None) -> None:
        self._socket = _open() if netns is None else in_namespace(netns, _open)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    # -- looking ---------------------------------------------------------------------------------------------

    def link(self, name: str) -> LinkFacts | None:
        """The link of that name, None when there is none."""
        try:
            answers = self._call([_link_message(_GETLINK, name=name)], step="look up link", obj=name)
        except NotFound:
            return None
        return _link_facts(answers[0])

    def links(self) -> list[LinkFacts]:
        return [_link_facts(item) for item in self._dump(_link_message(_GETLINK, flags=_REQUEST | _DUMP))]

    def addresses(self, index: int = 0) -> list[tuple[int, Interface]]:
        """(link index, address with prefix) of every link, or of the one given."""
        found = []
        for item in self._dump(_address_message(_GETADDR, flags=_REQUEST | _DUMP)):
            text = item.get_attr("IFA_LOCAL") or item.get_attr("IFA_ADDRESS")
            if index in (0, item["index"]):
                found.append((int(item["index"]), ip_interface(f"{text}/{item['prefixlen']}")))
        return found

    def routes(self) -> list[RouteFacts]:
        """Unicast routes of the main table, both families."""
        return [
            _route_facts(item)
            for item in self._dump(_route_message(_GETROUTE, flags=_REQUEST | _DUMP))
            if item["type"] == _UNICAST and (item.get_attr("RTA_TABLE") or item["table"]) == _MAIN_TABLE
        ]

    # -- changing --------------------------------------------------------------------------------------------

    def add_bridge(self, name: str, mac: str, mtu: int) -> None:
        """Raises Conflict when a link of that name exists."""
        kind = ["IFLA_LINKINFO", {"attrs": [["IFLA_INFO_KIND", "bridge"]]}]
        attrs: list[list[Any]] = [["IFLA_ADDRESS", mac], ["IFLA_MTU", mtu], kind]
        self._call([_link_message(_NEWLINK, _CREATE | _EXCL, name=name, up=True, attrs=attrs)], "add bridge", name)

    def set_link(self, name: str, *, mtu: int | None = None, mac: str | None = None, up: bool = True) -> None:
        attrs: list[list[Any]] = []
        if mtu is not None:
            attrs.append(["IFLA_MTU", mtu])
        if mac is not None:
            attrs.append(["IFLA_ADDRESS", mac])
        self._call([_link_message(_NEWLINK, name=name, up=up, attrs=attrs)], step="set link", obj=name)

    def add_veth(self, plan: LinkPlan, bridge: LinkFacts, netns: int) -> LinkFacts:
        """The pair: the node's end here, up and a port of the bridge, the pod's end at once in `netns`.

        The pod's end cannot come up in the same message: veth_open() answers ENOTCONN before the pair is tied.
        Raises Conflict when either name is taken.
        """
        peer: list[list[Any]] = [["IFLA_IFNAME", plan.ifname], ["IFLA_MTU", plan.mtu], ["IFLA_NET_NS_FD", netns]]
        if plan.mac:
            peer.append(["IFLA_ADDRESS", plan.mac])
        veth = _info("IFLA_INFO_KIND", "veth", "IFLA_INFO_DATA", "VETH_INFO_PEER", _peer(peer))
        port = _info("IFLA_INFO_SLAVE_KIND", "bridge", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_MODE", int(plan.hairpin))
        create = [["IFLA_MTU", plan.mtu], ["IFLA_MASTER", bridge.index], veth]
        name = plan.host_ifname
        answers = self._call(
            [
                _link_message(_NEWLINK, _CREATE | _EXCL, name=name, up=True, attrs=create),
                _link_message(_NEWLINK, name=name, attrs=[port]),
                _link_message(_GETLINK, name=name),
            ],
            step="add veth pair",
            obj=f"{name} and {plan.ifname}",
        )
        return _link_facts(answers[0])

    def set_up_pod(self, plan: LinkPlan) -> LinkFacts:
        """Inside the pod: loopback up, then addresses, link up and routes of its end."""
        found = self._call(
            [_link_message(_GETLINK, name=plan.ifname), _link_message(_NEWLINK, index=_LOOPBACK_INDEX, up=True)],
            step="look up link",
            obj=plan.ifname,
        )
        link = _link_facts(found[0])
        messages = [_address_message(_NEWADDR, _CREATE | _REPLACE, link.index, item) for item in plan.addresses]
        messages.append(_link_message(_NEWLINK, index=link.index, up=True))
        messages += [_pod_route(route, link.index) for route in plan.routes]
        self._call(messages, step="set addresses and routes", obj=plan.ifname)
        return link

    def delete_link(self, name: str) -> bool:
        """False when it was gone already."""
        try:
            self._call([_link_message(_DELLINK, name=name)], step="delete link", obj=name)
        except NotFound:
            return False
        return True

    def add_address(self, index: int, address: Interface) -> None:
        """Raises Conflict when it is there already."""
        self._call([_address_message(_NEWADDR, _CREATE | _EXCL, index, address)], "add address", str(address))

    def delete_address(self, index: int, address: Interface) -> None:
        self._call([_address_message(_DELADDR, 0, index, address)], step="delete address", obj=str(address))

    def replace_route(self, route: NodeRoute, protocol: int) -> None:
        attrs = [["RTA_DST", str(route.destination.network_address)], ["RTA_GATEWAY", str(route.gateway)]]
        message = _route_message(_NEWROUTE, _CREATE | _REPLACE, route.destination, attrs, protocol)
        self._call([message], step="set route", obj=f"{route.destination} via {route.gateway}")

    def delete_route(self, route: RouteFacts) -> bool:
        """False when it was gone already."""
        attrs: list[list[Any]] = [["RTA_DST", str(route.destination.network_address)]]
        if route.gateway is not None:
            attrs.append(["RTA_GATEWAY", str(route.gateway)])
        message = _route_message(_DELROUTE, 0, route.destination, attrs, route.protocol)
        try:
            self._call([message], step="delete route", obj=str(route.destination))
        except NotFound:
            return False
        return True

    # -- transport -------------------------------------------------------------------------------------------

    def _call(self, messages: Sequence[Any], step: str, obj: str) -> list[Any]:
        """Send all in one datagram, wait for every acknowledgement; the first refusal is raised, translated.

        The kernel goes on with the other messages after one it refuses (netlink_rcv_skb), so nothing may
        follow one whose failure it must not survive.
        """
        self._send(messages, step, obj)
        waiting = set(range(1, len(messages) + 1))
        answers: list[Any] = []
        refusal: tuple[int, int, str] | None = None
        while waiting:
            for kind, _, sequence, data in self._receive(step, obj):
                if kind == _ERROR:
                    waiting.discard(sequence)
                    code, text = _refusal(data)
                    if code and (refusal is None or sequence < refusal[0]):
                        refusal = (sequence, code, text)
                elif kind in _CLASSES:
                    answers.append(_decode(kind, data))
        if refusal is not None:
            raise translate(refusal[1], refusal[2], step=step, obj=obj)
        return answers

    def _dump(self, message: Any) -> list[Any]:
        """All answers to a dump; one that the kernel marks as interrupted is made again.

        https://docs.kernel.org/userspace-api/netlink/intro.html, "Dump consistency".
        """
        for _ in range(_DUMP_TRIES):
            answers, interrupted = self._dump_once(message)
            if not interrupted:
                return answers
        raise Temporary(f"the kernel's list changed {_DUMP_TRIES} times while it was read", step="netlink dump")

    def _dump_once(self, message: Any) -> tuple[list[Any], bool]:
        self._send([message], "netlink dump", "")
        answers: list[Any] = []
        interrupted = False
        while True:
            for kind, flags, _, data in self._receive("netlink dump", ""):
                interrupted |= bool(flags & _DUMP_INTR)
                if kind in (_DONE, _ERROR):
                    code = -struct.unpack_from("=i", data, 16)[0] if len(data) >= 20 else 0
                    if code:
                        raise translate(code, "", step="netlink dump", obj="")
                    return answers, interrupted
                if kind in _CLASSES:
                    answers.append(_decode(kind, data))

    def _send(self, messages: Sequence[Any], step: str, obj: str) -> None:
        data = bytearray()
        for sequence, message in enumerate(messages, 1):
            message["header"]["sequence_number"] = sequence
            message["header"]["pid"] = 0
            message.reset()
            message.encode()
            data += message.data
        try:
            self._socket.send(data)
        except OSError as error:
            raise translate(error.errno or 0, "", step=step, obj=obj) from error

    def _receive(self, step: str, obj: str) -> list[tuple[int, int, int, bytes]]:
        try:
            data = self._socket.recv(1 << 17)
        except TimeoutError as error:
            raise Temporary(f"no answer from the kernel in {_ANSWER_SECONDS} s", step=step, obj=obj) from error
        except OSError as error:
            raise translate(error.errno or 0, "", step=step, obj=obj) from error
        parts, offset = [], 0
        while offset + _HEADER.size <= len(data):
            length, kind, flags, sequence, _ = _HEADER.unpack_from(data, offset)
            parts.append((kind, flags, sequence, data[offset : offset + length]))
            offset += (length + 3) & ~3
        return parts


def translate(code: int, text: str, *, step: str, obj: str) -> NodewrightError:
    """An errno of the kernel as an error that says what to do; `text` is the kernel's own explanation, if any."""
    said = os.strerror(code) + (f" ({text})" if text else "")
    if code == errno.EEXIST:
        return Conflict(said, step=step, obj=obj)
    if code in (errno.ENODEV, errno.ENOENT, errno.ESRCH, errno.EADDRNOTAVAIL):
        return NotFound(said, step=step, obj=obj)
    if code in (errno.EPERM, errno.EACCES):
        return Permanent(said, step=step, obj=obj, action="Run it as root with CAP_NET_ADMIN on this node.")
    if code in (errno.EBUSY, errno.EAGAIN, errno.EINTR, errno.ENOBUFS, errno.ENOMEM):
        return Temporary(said, step=step, obj=obj)
    if code == errno.EOPNOTSUPP:
        return Permanent(said, step=step, obj=obj, action="The kernel lacks this kind of link (veth, bridge).")
    return Permanent(said, step=step, obj=obj)


def _open() -> socket.socket:
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    sock.setsockopt(_SOL_NETLINK, _EXT_ACK, 1)
    sock.settimeout(_ANSWER_SECONDS)
    sock.bind((0, 0))
    return sock


def _link_message(
    kind: int,
    extra: int = 0,
    *,
    flags: int = _REQUEST | _ACK,
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


def _address_message(
    kind: int, extra: int = 0, index: int = 0, address: Interface | None = None, *, flags: int = _REQUEST | _ACK
) -> Any:
    message = ifaddrmsg()
    message["header"] = {"type": kind, "flags": flags | extra}
    if address is not None:
        message["family"] = _family(address)
        message["prefixlen"] = address.network.prefixlen
        message["index"] = index
        message["attrs"] = [["IFA_LOCAL", str(address.ip)], ["IFA_ADDRESS", str(address.ip)]]
        if address.version == 6:
            # Ours alone by construction: duplicate detection would only hold up the pod for a second or more.
            message["flags"] = _IFA_F_NODAD
        elif address.network.prefixlen < 31:
            message["attrs"].append(["IFA_BROADCAST", str(address.network.broadcast_address)])
    return message


def _route_message(
    kind: int,
    extra: int = 0,
    destination: Network | None = None,
    attrs: Sequence[list[Any]] = (),
    protocol: int = 0,
    *,
    flags: int = _REQUEST | _ACK,
) -> Any:
    message = rtmsg()
    message["header"] = {"type": kind, "flags": flags | extra}
    if destination is not None:
        message["family"] = _family(destination)
        message["dst_len"] = destination.prefixlen
        message["table"], message["type"], message["proto"] = _MAIN_TABLE, _UNICAST, protocol
        message["attrs"] = list(attrs)
    return message


def _pod_route(route: Route, index: int) -> Any:
    attrs: list[list[Any]] = [["RTA_OIF", index]]
    if route.destination.prefixlen:
        attrs.append(["RTA_DST", str(route.destination.network_address)])
    if route.gateway is not None:
        attrs.append(["RTA_GATEWAY", str(route.gateway)])
    message = _route_message(_NEWROUTE, _CREATE | _REPLACE, route.destination, attrs, _BOOT)
    if route.gateway is None:
        message["scope"] = _LINK_SCOPE
    return message


def _info(kind_name: str, kind: str, data_name: str, attr: str, value: Any) -> list[Any]:
    return ["IFLA_LINKINFO", {"attrs": [[kind_name, kind], [data_name, {"attrs": [[attr, value]]}]]}]


def _peer(attrs: list[list[Any]]) -> dict[str, Any]:
    return {"index": 0, "flags": 0, "change": 0, "attrs": attrs}


def _family(value: Interface | Network) -> int:
    return int(socket.AF_INET if value.version == 4 else socket.AF_INET6)


def _refusal(data: bytes) -> tuple[int, str]:
    code = -struct.unpack_from("=i", data, 16)[0]
    if not code:
        return 0, ""
    message = nlmsgerr(data)
    message.decode()
    return code, str(message.get_attr("NLMSGERR_ATTR_MSG") or "")


def _decode(kind: int, data: bytes) -> Any:
    message = _CLASSES[kind](data)
    message.decode()
    return message


def _link_facts(message: Any) -> LinkFacts:
    info = message.get_attr("IFLA_LINKINFO")
    return LinkFacts(
        index=int(message["index"]),
        name=str(message.get_attr("IFLA_IFNAME")),
        kind=str((info.get_attr("IFLA_INFO_KIND") if info else "") or ""),
        mac=str(message.get_attr("IFLA_ADDRESS") or ""),
        mtu=int(message.get_attr("IFLA_MTU") or 0),
        up=bool(message["flags"] & _IFF_UP),
        master=int(message.get_attr("IFLA_MASTER") or 0),
    )


def _route_facts(message: Any) -> RouteFacts:
    anywhere = "0.0.0.0" if message["family"] == socket.AF_INET else "::"
    gateway = message.get_attr("RTA_GATEWAY")
    return RouteFacts(
        destination=ip_network(f"{message.get_attr('RTA_DST') or anywhere}/{message['dst_len']}"),
        gateway=ip_address(gateway) if gateway else None,
        link=int(message.get_attr("RTA_OIF") or 0),
        protocol=int(message["proto"]),
    )
