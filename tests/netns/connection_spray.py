"""Begins many connections and keeps their sockets: `connection_spray.py udp|tcp HOST SOCKETS PORTS`; standard library.

Each of so many sockets sends to as many ports of HOST by UDP; by TCP each connects to port 9, and one port is all.
Prints "READY" when all are begun, whatever becomes of them, and does not end.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import sys
import time


def main() -> None:
    kind, host, sockets, ports = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    kept = []
    for _ in range(sockets):
        one = socket.socket(family, socket.SOCK_DGRAM if kind == "udp" else socket.SOCK_STREAM)
        one.setblocking(False)
        for port in range(ports):
            with contextlib.suppress(OSError):
                if kind == "udp":
                    one.sendto(b"x", (host, 20_000 + port))
                else:
                    one.connect((host, 9))
        kept.append(one)
    print("READY", flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    main()
