"""Sockets that notice within seconds that nobody is at the other end any more.

A machine that is cut off, or gone without a word, ends no connection: a watch on it would only stay silent. Upstream's
clients ping inside HTTP/2 (30 + 15 s, k8s.io/apimachinery/pkg/util/net/http.go); here the kernel probes, see tcp(7).
What it cannot see is a server that is stopped: its kernel still answers, and so does a load balancer in between.
"""

from __future__ import annotations

import socket
from typing import Any

_IDLE, _INTERVAL = 2, 1  # seconds of silence before the first probe, and between two
_UNANSWERED_MS = 4000  # neither data nor probes acknowledged for so long: the connection is dead


def open_socket(address: tuple[Any, ...]) -> socket.socket:
    """For aiohttp's TCPConnector: `address` is one of getaddrinfo(). Raises OSError."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    watch_peer(made)
    return made


def watch_peer(connection: socket.socket) -> None:
    """Have the kernel end it, with ETIMEDOUT, within five seconds of its peer's disappearing."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)
