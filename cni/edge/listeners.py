"""Which ports processes of the node have: /proc/net of this process's network namespace (proc(5)). Decides nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

from cni.model import Listener

_PROC = Path("/proc/net")
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
# State of a socket that takes connections, or packets from anybody (include/net/tcp_states.h).
_STATES = {"tcp": "0A", "udp": "07"}


def listeners() -> Iterator[Listener]:
    """Every one, of both families. A table that the kernel does not have is empty."""
    for protocol, state in _STATES.items():
        for name in (protocol, f"{protocol}6"):
            try:
                text = (_PROC / name).read_text(errors="replace")
            except OSError:
                continue
            for line in text.splitlines()[1:]:
                fields = line.split()
                if len(fields) > 3 and fields[3] == state:
                    address, _, port = fields[1].partition(":")
                    yield Listener(protocol, ip_address(_in_network_order(address)), int(port, 16))


def clients_ports() -> tuple[int, int]:
    """The first and the last port that the kernel gives to a socket that asks for none."""
    try:
        first, last = map(int, _RANGE.read_text().split())
    except (OSError, ValueError):
        return 32768, 60999
    return first, last


def _in_network_order(text: str) -> bytes:
    """An address as the kernel prints it: words of four bytes, each in the machine's order."""
    raw = bytes.fromhex(text)
    words = (raw[at : at + 4] for at in range(0, len(raw), 4))
    return b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
