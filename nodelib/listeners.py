"""Sockets that take connections, or packets from anybody, in the tables of /proc/PID/net (proc(5)). Reads only."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from itertools import islice

_LISTEN, _NO_PEER = "0A", "07"  # TCP_LISTEN, TCP_CLOSE (include/net/tcp_states.h): a UDP socket without a peer
TABLES = {"tcp": _LISTEN, "tcp6": _LISTEN, "udp": _NO_PEER, "udp6": _NO_PEER}


def listening(folder: str, table: str, most: int | None = None) -> Iterator[tuple[str, int]]:
    """The address and the port of each such socket in a table of `folder`, of whose rows at most so many are read.

    Raises OSError, and ValueError or IndexError for what is no such table.
    """
    state, version = TABLES[table], 6 if table.endswith("6") else 4
    with open(f"{folder}/{table}", encoding="ascii") as file:
        next(file, "")
        for row in map(str.split, islice(file, most)):
            if row[3] == state:
                host, _, port = row[1].rpartition(":")
                yield address(version, host), int(port, 16)
            elif state == _LISTEN:
                return  # the kernel lists connections after all listeners


def address(version: int, text: str) -> str:
    """An address as these tables have it: words of 32 bits in the machine's order."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    return socket.inet_ntop(socket.AF_INET6 if version == 6 else socket.AF_INET, b"".join(words))
