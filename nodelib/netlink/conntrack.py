"""Lists and deletes UDP entries of connection tracking over netlink. Blocking: call it in a thread. Decides nothing.

The messages (linux/netfilter/nfnetlink_conntrack.h) are decoded in `conntrack_entries.py`: the proxy needs no netlink
library.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct
from collections.abc import Iterable

from nodelib.errors import Permanent
from nodelib.firewall.objects import Family
from nodelib.netlink import conntrack_entries as entries
from nodelib.netlink import netfilter
from nodelib.netlink.conntrack_entries import udp_flow
from nodelib.netlink.families import NF_FAMILY
from nodelib.netlink.flows import UdpFlow
from nodelib.netlink.framing import attribute, messages, nested

_GET, _DELETE = (1 << 8) | 1, (1 << 8) | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_*
_RCVBUFFORCE = 33
_UDP = bytes((socket.IPPROTO_UDP,))


class Conntrack:
    """One address family, in the network namespace of the calling thread. Every call raises Permanent."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def list_udp(self) -> list[UdpFlow]:
        """All UDP flows."""
        try:
            with _open() as channel:
                found = netfilter.dump(channel, _GET, NF_FAMILY[self._family])
                return [flow for body in found if (flow := udp_flow(body, self._family)) is not None]
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

    def _original(self, flow: UdpFlow) -> bytes:
        source, destination = (ipaddress.ip_address(one).packed for one in (flow.source, flow.destination))
        address = attribute(entries.SOURCE[self._family], source) + attribute(
            entries.DESTINATION[self._family], destination
        )
        ports = attribute(entries.SOURCE_PORT, struct.pack(">H", flow.source_port))
        ports += attribute(entries.DESTINATION_PORT, struct.pack(">H", flow.destination_port))
        protocol = attribute(entries.NUMBER, _UDP) + ports
        return nested(entries.ORIGINAL, nested(entries.IP, address) + nested(entries.PROTO, protocol))


def _open() -> socket.socket:
    channel = netfilter.connect(timeout=30)
    netfilter.reserve(channel, _RCVBUFFORCE, socket.SO_RCVBUF, 4 << 20)
    return channel


def _acknowledged(channel: socket.socket, number: int) -> None:
    while True:
        for kind, _, sequence, body in messages(channel.recv(1 << 16)):
            if kind == netfilter.ERROR and sequence == number:
                return netfilter.check(body)


def _refused(step: str, error: OSError) -> Permanent:
    action = "The node needs CAP_NET_ADMIN." if error.errno in (errno.EPERM, errno.EACCES) else ""
    return Permanent(str(error), obj="connection tracking", step=step, action=action)
