"""Clients and servers for tests of the proxy; standard library only.

`serve tcp|udp PORT NAME` answers each message with NAME and the client's address. `ask tcp|udp HOST PORT [COUNT
[SOURCE_PORT]]` prints one answer a line. `stream HOST PORT` keeps one TCP connection talking until stdin ends, `knock
HOST PORT` makes new ones, `hold HOST PORT` keeps one of HTTP; all print what went wrong, or "ok N".
"""

from __future__ import annotations

import os
import select
import socket
import sys
import threading
import time

TIMEOUT = float(os.environ.get("PEER_TIMEOUT", "3"))  # seconds


def serve(kind: str, port: int, name: str) -> None:
    sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("::", port))
    if kind == "tcp":
        sock.listen(256)
    print("READY", flush=True)
    while True:
        if kind == "udp":
            _, peer = sock.recvfrom(100)
            sock.sendto(f"{name} {_shown(peer[0])}".encode(), peer)
        else:
            connection, peer = sock.accept()
            threading.Thread(target=_converse, args=(connection, f"{name} {_shown(peer[0])}"), daemon=True).start()


def _shown(address: str) -> str:
    return address.removeprefix("::ffff:")


def _converse(connection: socket.socket, answer: str) -> None:
    with connection:
        while connection.recv(100):
            connection.sendall(answer.encode())


def ask(kind: str, host: str, port: int, count: int, source_port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(count):
        sock = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        sock.settimeout(TIMEOUT)
        try:
            if source_port:
                sock.bind(("0.0.0.0", source_port))
            sock.connect((host, port))
            sock.send(b"?")
            print(sock.recv(100).decode(), flush=True)
        except OSError as error:
            print(type(error).__name__, flush=True)
        finally:
            sock.close()


def _stopped() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def stream(host: str, port: int) -> None:
    sock = socket.create_connection((host, port), timeout=10)
    print("READY", flush=True)
    count = 0
    try:
        while not _stopped():
            sock.sendall(b"?")
            if not sock.recv(100):
                raise OSError("closed by the peer")
            count += 1
            time.sleep(0.02)
    except OSError as error:
        print(f"broken after {count}: {error!r}")
        return
    print(f"ok {count}")


def hold(host: str, port: int) -> None:
    """One HTTP connection kept alive, a request every half second."""
    sock = socket.create_connection((host, port), timeout=10)
    print("READY", flush=True)
    count = 0
    try:
        while not _stopped():
            sock.sendall(b"GET /hostname HTTP/1.1\r\nHost: x\r\n\r\n")
            if not sock.recv(4096):
                raise OSError("closed by the peer")
            count += 1
            time.sleep(0.5)
    except OSError as error:
        print(f"broken after {count}: {error!r}")
        return
    print(f"ok {count}")


def knock(host: str, port: int) -> None:
    print("READY", flush=True)
    failures, count = [], 0
    while not _stopped():
        try:
            with socket.create_connection((host, port), timeout=3) as sock:
                sock.sendall(b"?")
                if not sock.recv(100):
                    raise OSError("closed by the peer")
        except OSError as error:
            failures.append(repr(error))
        count += 1
        time.sleep(0.01)
    print(f"ok {count}" if not failures else f"{len(failures)} of {count} failed: {failures[:3]}")


if __name__ == "__main__":
    verb, *rest = sys.argv[1:]
    if verb == "serve":
        serve(rest[0], int(rest[1]), rest[2])
    elif verb == "ask":
        ask(rest[0], rest[1], int(rest[2]), int(rest[3] if len(rest) > 3 else 1), int(rest[4] if len(rest) > 4 else 0))
    elif verb == "hold":
        hold(rest[0], int(rest[1]))
    elif verb == "stream":
        stream(rest[0], int(rest[1]))
    else:
        knock(rest[0], int(rest[1]))
