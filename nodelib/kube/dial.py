"""Sockets that notice a dead peer within seconds.

A machine that is cut off or crashes does not close its connections: a watch would just stay silent. Upstream's clients
ping inside HTTP/2 (30 + 15 s, k8s.io/apimachinery/pkg/util/net/http.go); here the kernel sends probes, see tcp(7). They
do not detect a server process that is stopped: its kernel, or a load balancer in between, still answers.
"""

from __future__ import annotations

import socket
from typing import Any

_IDLE, _INTERVAL = 2, 1  # seconds before the first probe, and between two probes
_UNANSWERED_MS = 4000  # milliseconds without an acknowledgement after which the connection is dead


def open_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket for aiohttp's TCPConnector. `address`: an entry of getaddrinfo(). Raises OSError."""
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    watch_peer(made)
    return made


def watch_peer(connection: socket.socket) -> None:
    """Make the kernel end the connection with ETIMEDOUT within five seconds after its peer disappears."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNANSWERED_MS)
