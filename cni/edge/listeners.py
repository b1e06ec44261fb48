"""Which ports processes of the node have: /proc/net of this process's network namespace (proc(5)). Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path

from cni.model import Listener
from nodelib.listeners import TABLES, listening

_NET = "/proc/net"
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def listeners() -> Iterator[Listener]:
    """Every one, of both families. A table that the kernel does not have is empty."""
    for table in TABLES:
        with suppress(OSError):
            for host, port in listening(_NET, table):
                yield Listener(table.rstrip("6"), ip_address(host), port)


def clients_ports() -> tuple[int, int]:
    """The first and the last port that the kernel gives to a socket that asks for none."""
    try:
        first, last = map(int, _RANGE.read_text().split())
    except (OSError, ValueError):
        return 32768, 60999
    return first, last
