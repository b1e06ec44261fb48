"""Lists and deletes UDP entries of connection tracking over netlink. Blocking: call it in a thread. Decides nothing.

The messages (linux/netfilter/nfnetlink_conntrack.h) are decoded here: a dump of 100,000 entries takes half a second,
and the proxy needs no netlink library.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections.abc import Iterable

from nodelib.errors import Permanent
from nodelib.firewall.objects import Family
from nodelib.netlink import netfilter
from nodelib.netlink.families import NF_FAMILY
from nodelib.netlink.flows import UdpFlow
from nodelib.netlink.framing import attribute, attributes, messages, nested

_GET, _DELETE = (1 << 8) | 1, (1 << 8) | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_*
_ORIGINAL, _REPLY = 1, 2  # CTA_TUPLE_*
_IP, _PROTO = 1, 2
_SOURCE, _DESTINATION = {Family.IPV4: 1, Family.IPV6: 3}, {Family.IPV4: 2, Family.IPV6: 4}
_NUMBER, _SOURCE_PORT, _DESTINATION_PORT = 1, 2, 3
_RCVBUFFORCE = 33
_UDP = bytes((socket.IPPROTO_UDP,))
Tuple = tuple[bytes, int, bytes, int]


class Conntrack:
    """One address family, in the network namespace of the calling thread. Every call raises Permanent."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def list_udp(self) -> list[UdpFlow]:
        """All UDP flows."""
        try:
            with _open() as channel:
                found = map(self._flow, netfilter.dump(channel, _GET, NF_FAMILY[self._family]))
                return [flow for flow in found if flow is not None]
        except OSError as error:
            raise _refused("list UDP flows", error) from error

    def delete(self, flows: Iterable[UdpFlow]) -> int:
        """Delete `flows`; returns how many still existed."""
        count = 0
        try:
            with _open() as channel:
                for number, flow in enumerate(flows, 1):
                    channel.send(self._request(_DELETE, netfilter.ACK, number, self._original(flow)))
                    try:
                        _acknowledged(channel, number)
                        count += 1
                    except FileNotFoundError:
                        continue
        except OSError as error:
            raise _refused("delete UDP flows", error) from error
        return count

    def _request(self, kind: int, flags: int, number: int, body: bytes) -> bytes:
        return netfilter.message(kind, flags, number, body, NF_FAMILY[self._family])

    def _flow(self, body: bytes) -> UdpFlow | None:
        """The flow of one entry, None if it is not UDP."""
        original: Tuple | None = None
        for kind, value in attributes(body, 4):
            if kind == _ORIGINAL:
                original = self._tuple(value)
                if original is None:
                    return None
            elif kind == _REPLY and original is not None:
                reply = self._tuple(value)
                if reply is not None:
                    source, source_port, destination, port = original
                    ends = _text(source), source_port, _text(destination), port
                    return UdpFlow(*ends, _text(reply[0]), reply[1])
        return None

    def _tuple(self, value: bytes) -> Tuple | None:
        parts = dict(attributes(value))
        protocol = dict(attributes(parts.get(_PROTO, b"")))
        if protocol.get(_NUMBER, b"")[:1] != _UDP:
            return None
        address = dict(attributes(parts[_IP]))
        return (
            address[_SOURCE[self._family]],
            _port(protocol, _SOURCE_PORT),
            address[_DESTINATION[self._family]],
            _port(protocol, _DESTINATION_PORT),
        )

    def _original(self, flow: UdpFlow) -> bytes:
        source, destination = (ipaddress.ip_address(one).packed for one in (flow.source, flow.destination))
        address = attribute(_SOURCE[self._family], source) + attribute(_DESTINATION[self._family], destination)
        ports = attribute(_SOURCE_PORT, struct.pack(">H", flow.source_port))
        ports += attribute(_DESTINATION_PORT, struct.pack(">H", flow.destination_port))
        protocol = attribute(_NUMBER, _UDP) + ports
        return nested(_ORIGINAL, nested(_IP, address) + nested(_PROTO, protocol))


def _open() -> socket.socket:
    channel = netfilter.connect(timeout=30)
    netfilter.reserve(channel, _RCVBUFFORCE, socket.SO_RCVBUF, 4 << 20)
    return channel


def _acknowledged(channel: socket.socket, number: int) -> None:
    while True:
        for kind, _, sequence, body in messages(channel.recv(1 << 16)):
            if kind == netfilter.ERROR and sequence == number:
                return netfilter.check(body)


def _port(protocol: dict[int, bytes], which: int) -> int:
    value = protocol.get(which)
    return int.from_bytes(value[:2], "big") if value else 0


def _text(packed: bytes) -> str:
    return socket.inet_ntop(socket.AF_INET if len(packed) == 4 else socket.AF_INET6, packed)


def _refused(step: str, error: OSError) -> Permanent:
    action = "The node needs CAP_NET_ADMIN." if error.errno in (errno.EPERM, errno.EACCES) else ""
    return Permanent(str(error), obj="connection tracking", step=step, action=action)
