"""What the relays of a proxy share: their sockets, and how much the Services of one namespace may have open."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from nodelib.firewall.objects import Family

# Of all Services of a namespace: one of them may have thousands of ports. Where some take all of it, each other port
# still has what it would have if all had the same: whoever may reach one of them must not take that of others.
MOST_CONNECTIONS_OF_NAMESPACE = 16_384
MOST_TALKS_OF_NAMESPACE = 8192

Address = tuple[str, int]
Choose = Callable[[str, bool], Address | None]  # client, reset_affinity


@dataclass(slots=True, weakref_slot=True)
class Open:
    """What the relays of a namespace have open, and how many of them listen."""

    connections: int = 0
    talks: int = 0
    tcp_relays: int = 0
    udp_relays: int = 0


def bound_socket(family: Family, kind: int) -> socket.socket:
    """A socket on a free port of every local address of the family. Raises OSError."""
    own = socket.AF_INET if family is Family.IPV4 else socket.AF_INET6
    sock = socket.socket(own, kind | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if own == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(("", 0))
    except OSError:
        sock.close()
        raise
    return sock
