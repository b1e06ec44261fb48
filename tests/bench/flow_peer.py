"""Server and client of `policy_flows.py`; standard library only. `ask HOST` prints its figures as JSON."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time

_PORT, _BLOCK = 8090, 1 << 18
_CONNECTS, _TRIPS, _TIMES, _LONG = 300, 10_000, 60, 0.02


def serve() -> None:
    listener = socket.create_server(("", _PORT), backlog=1024)
    threading.Thread(target=_echo, daemon=True).start()
    print("READY", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_converse, args=(connection,), daemon=True).start()


def _echo() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("", _PORT))
        while True:
            data, where = sock.recvfrom(1 << 16)
            sock.sendto(data, where)


def _converse(connection: socket.socket) -> None:
    """After the first byte: "e" echoes, "s" swallows."""
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        kind, space = connection.recv(1), bytearray(_BLOCK)
        while size := connection.recv_into(space):
            if kind == b"e":
                connection.sendall(space[:size])


def ask(host: str) -> dict[str, float]:
    """Seconds: until a connection stands (and the slowest of 100), of a round trip, for a byte, of a request by UDP
    and of the first one from a port.
    """
    connects = _connects(host)
    found = {"connect": _low(connects), "connect p99": sorted(connects)[len(connects) * 99 // 100]}
    found |= {"trip": _low(_trips(host)), "second": 1 / max(_rates(host))}
    return {**found, "request": _low(_requests(host)), "first request": _low(_first_requests(host))}


def _low(values: list[float]) -> float:
    """What it takes when nothing else runs: a tenth of the values are below it."""
    return sorted(values)[len(values) // 10]


def _connects(host: str) -> list[float]:
    found = []
    for _ in range(_CONNECTS):
        began = time.perf_counter()
        with socket.create_connection((host, _PORT), 5):
            found.append(time.perf_counter() - began)
    return found


def _trips(host: str) -> list[float]:
    found = []
    with _opened(host, b"e") as sock:
        for _ in range(_TRIPS):
            began = time.perf_counter()
            sock.sendall(b"?")
            sock.recv(1)
            found.append(time.perf_counter() - began)
    return found


def _requests(host: str) -> list[float]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        sock.connect((host, _PORT))
        return [_request(sock) for _ in range(_TRIPS)]


def _first_requests(host: str) -> list[float]:
    found = []
    for _ in range(_CONNECTS):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(5)
            sock.connect((host, _PORT))
            found.append(_request(sock))
    return found


def _request(sock: socket.socket) -> float:
    began = time.perf_counter()
    sock.send(b"?")
    sock.recv(1)
    return time.perf_counter() - began


def _rates(host: str) -> list[float]:
    """Bytes in a second, of several short times."""
    block, found = bytes(_BLOCK), []
    with _opened(host, b"s") as sock:
        for _ in range(_TIMES):
            count, began = 0, time.perf_counter()
            while time.perf_counter() - began < _LONG:
                sock.sendall(block)
                count += len(block)
            found.append(count / (time.perf_counter() - began))
    return found


def _opened(host: str, kind: bytes) -> socket.socket:
    sock = socket.create_connection((host, _PORT), 5)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.sendall(kind)
    return sock


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve()
    else:
        print(json.dumps(ask(sys.argv[2])))
