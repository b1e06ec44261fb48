"""Which transport protocols this kernel has."""

from __future__ import annotations

import socket


def has_sctp() -> bool:
    """Whether this kernel has SCTP."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()
    except OSError:
        return False
    return True
