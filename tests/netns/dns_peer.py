"""A name server and a client of it for tests, over UDP. Needs the root of the project in PYTHONPATH.

`serve PORT JSON` answers from {name: [seconds, record, ...]}, where a record is an address, or a name for an alias;
what has no entry does not exist. `reach SERVER PORT NAME ...` asks for each name (for IPv6 with "6:" before it), and
connects at once to the address that it is told: one line each, of the name, the address, and what came of it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from ipaddress import ip_address

from tests.builders import dns

TIMEOUT = float(os.environ.get("PEER_TIMEOUT", "3"))  # seconds


def serve(port: int, names: dict[str, list[object]]) -> None:
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("::", port))
    print("READY", flush=True)
    while True:
        data, peer = sock.recvfrom(2048)
        number, kind = struct.unpack_from(">H", data)[0], struct.unpack_from(">H", data, len(data) - 4)[0]
        asked = _text(data)
        records = _records(asked, kind, names)
        flags = 0x8180 if asked.lower() in names else 0x8183
        sock.sendto(dns.message(asked, *records, kind=kind, number=number, flags=flags), peer)


def _records(name: str, kind: int, names: dict[str, list[object]]) -> list[bytes]:
    found: list[bytes] = []
    seconds, *records = names.get(name.lower(), [0])
    assert isinstance(seconds, int)
    for one in map(str, records):
        try:
            if kind == (dns.A if ip_address(one).version == 4 else dns.AAAA):
                found.append(dns.address(name, one, seconds))
        except ValueError:
            found += [dns.alias(name, one, seconds), *_records(one, kind, names)]
    return found


def _text(data: bytes) -> str:
    labels, at = [], 12
    while data[at]:
        labels.append(data[at + 1 : at + 1 + data[at]].decode())
        at += data[at] + 1
    return ".".join(labels)


def reach(server: str, port: int, names: list[str]) -> None:
    for number, name in enumerate(names):
        kind = dns.A
        if name.startswith("6:"):
            kind, name = dns.AAAA, name[2:]
        sock = socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM)
        sock.settimeout(TIMEOUT)
        sock.connect((server, port))
        head = struct.pack(">HHHHHH", number, 0x0100, 1, 0, 0, 0)
        sock.send(head + dns.name(name) + struct.pack(">HH", kind, dns.IN))
        try:
            data = sock.recv(4096)
        except OSError as error:
            print(name, "-", f"DNS {type(error).__name__}", flush=True)
            continue
        address = _address(data, kind)
        print(name, address, _connected(address) if address else "no address", flush=True)


def _address(data: bytes, kind: int) -> str:
    """The last record's, which in these answers is the end of all aliases."""
    size = 4 if kind == dns.A else 16
    return str(ip_address(data[-size:])) if struct.unpack_from(">H", data, 6)[0] else ""


def _connected(address: str) -> str:
    try:
        with socket.create_connection((address, 8080), TIMEOUT) as sock:
            sock.sendall(b"?")
            return sock.recv(100).decode().split()[0]
    except OSError as error:
        return type(error).__name__


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), json.loads(sys.argv[3]))
    else:
        reach(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
