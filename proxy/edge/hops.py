"""Ends what is relayed in a circle, as routers do: each relay sends with a lower TTL than what it has received had.

An endpoint may be the address of a Service, its own too, or a node's with a NodePort: whoever may write EndpointSlices
chooses it. Each relay on the way is a new connection, or conversation, so that nothing else would end it. The packets
of relays of other nodes are counted in the same way.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterable

_FRESH = 64  # what systems begin with, or more
_EACH = 12  # what a relay takes: five are passed one after the other
# linux/tcp.h, linux/in.h, linux/in6.h
_SAVE_SYN, _SAVED_SYN = 27, 28
_RECEIVE = {socket.AF_INET: (socket.IPPROTO_IP, 12), socket.AF_INET6: (socket.IPPROTO_IPV6, 51)}
_SEND = {socket.AF_INET: (socket.IPPROTO_IP, 2), socket.AF_INET6: (socket.IPPROTO_IPV6, 16)}
_RECEIVED = {(socket.IPPROTO_IP, 2), (socket.IPPROTO_IPV6, 52)}
_LONGEST_SYN = 128  # bytes of its headers that are read


def left(received: int) -> int:
    """The TTL to send with, for one that was received; 0: it has been relayed often enough."""
    return max(0, min(received or _FRESH, _FRESH) - _EACH)


def tell_of_packets(sock: socket.socket) -> None:
    """Have the TTL of each packet that a UDP socket receives told with it."""
    sock.setsockopt(*_RECEIVE[sock.family], 1)


def tell_of_connections(listener: socket.socket) -> None:
    """Have the first packet of each connection kept that a TCP socket accepts."""
    listener.setsockopt(socket.IPPROTO_TCP, _SAVE_SYN, 1)


def of_packet(told: Iterable[tuple[int, int, bytes]]) -> int:
    """The TTL in what came with a packet, 0 if it is not there."""
    return next(
        (int.from_bytes(value[:4], sys.byteorder) for level, kind, value in told if (level, kind) in _RECEIVED), 0
    )


def of_connection(accepted: socket.socket) -> int:
    """The TTL of its first packet, 0 if the kernel has not kept it, as in a flood of such packets."""
    head = accepted.getsockopt(socket.IPPROTO_TCP, _SAVED_SYN, _LONGEST_SYN)
    at = 7 if head[:1] and head[0] >> 4 == 6 else 8
    return head[at] if len(head) > at else 0


def send_with(sock: socket.socket, ttl: int) -> None:
    """Of a socket for an endpoint, before it connects or sends."""
    sock.setsockopt(*_SEND[sock.family], ttl)
