"""Says when packets begin or cease to pass, by sending them all the time; standard library only.

`prober.py CLIENT SERVERS`: paths of two network namespaces; this program sends in the first and listens in the second.
Each line of stdin is a command: {"closed": [[address, port], ...], "open": [[address, port], ...], "limit": seconds}.
It answers with two lines: what passes now ({"before": [true, ...]}, those of `closed` first), and then, when all have
become what they should, {"times": [...]}: when the last packet was sent that passed to one of `closed`, and the first
to one of `open`; null for those that did not within `limit`. Times are of the system's monotonic clock.

Each packet is a datagram from a port of its own, so none belongs to a connection that was allowed before.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import sys
import time

_CLONE_NEWNET = 0x40000000
_PERIOD = 0.001
_FIRST = 30  # packets to each, to see what passes
_LOST = 200  # packets in a row that do not pass: closed
_NUMBER = struct.Struct("!d")


class Target:
    """One address and port. Of the packets sent after `begin`: when the first and the latest was sent that passed, and
    how many have been lost since.
    """

    def __init__(self, host: str, port: int) -> None:
        self._where = (host, port)
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._sock.bind(self._where)
        self._sock.setblocking(False)
        self.begin, self.lost = 0.0, 0
        self.first: float | None = None
        self.latest: float | None = None

    def send(self) -> None:
        self.lost += 1
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            try:
                sock.sendto(_NUMBER.pack(time.monotonic()), self._where)
            except OSError:
                return  # what refuses it locally has not let it pass

    def receive(self) -> None:
        while True:
            try:
                data = self._sock.recv(64)
            except OSError:
                return
            (sent,) = _NUMBER.unpack(data)
            if sent >= self.begin:
                self.first = sent if self.first is None else self.first
                self.latest, self.lost = sent, 0

    def forget(self) -> None:
        self.begin, self.lost, self.first, self.latest = time.monotonic(), 0, None, None

    def close(self) -> None:
        self._sock.close()


def enter(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"setns {path}")
    os.close(handle)


def turn(targets: list[Target]) -> None:
    for one in targets:
        one.send()
    time.sleep(_PERIOD)
    for one in targets:
        one.receive()


def watch(closed: list[Target], opened: list[Target], limit: float) -> list[float | None]:
    every = [*closed, *opened]
    for one in every:
        one.forget()
    began = time.monotonic()
    while time.monotonic() < began + limit:
        turn(every)
        if all(one.lost >= _LOST for one in closed) and all(one.first is not None for one in opened):
            break
    last = [(one.latest or began) if one.lost >= _LOST else None for one in closed]
    return [*last, *(one.first for one in opened)]


def main(client: str, servers: str) -> None:
    enter(client)
    print("READY", flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        enter(servers)
        closed, opened = ([Target(host, port) for host, port in wanted[kind]] for kind in ("closed", "open"))
        enter(client)
        every = [*closed, *opened]
        for _ in range(_FIRST):
            turn(every)
        time.sleep(10 * _PERIOD)
        for one in every:
            one.receive()
        print(json.dumps({"before": [one.first is not None for one in every]}), flush=True)
        print(json.dumps({"times": watch(closed, opened, wanted["limit"])}), flush=True)
        for one in every:
            one.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
