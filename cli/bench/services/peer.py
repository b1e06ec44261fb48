"""Client and server of a measurement of the proxy; runs inside a namespace, with the standard library only.

`serve HOST PORT` accepts connections and discards what it reads. `client` reads a JSON command from each line of
stdin and answers with a line:
{"watch": [host, port, seconds]}: connect until it succeeds; answers when that was (monotonic, system-wide).
{"first": [[host, port], ...]}: seconds that each connect took until it was answered, a refusal included.
{"stream": [host, port, seconds]}: bytes per second that one connection takes.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
import time


def serve(host: str, port: int) -> None:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(1024)
    print("READY", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_drain, args=(connection,), daemon=True).start()


def _drain(connection: socket.socket) -> None:
    buffer = bytearray(1 << 18)
    with connection:
        try:
            while connection.recv_into(buffer):
                pass
        except OSError:
            return


def watch(host: str, port: int, seconds: float) -> float:
    """The time when a connect succeeded, 0.0 if none did within `seconds`."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as sock:
            sock.settimeout(0.2)
            if _connected(sock, host, port):
                return time.monotonic()
        time.sleep(0.0005)
    return 0.0


def first(host: str, port: int) -> float:
    with socket.socket() as sock:
        sock.settimeout(2)
        began = time.perf_counter()
        _connected(sock, host, port)
        return time.perf_counter() - began


def stream(host: str, port: int, seconds: float) -> float:
    chunk = bytes(1 << 18)
    with socket.create_connection((host, port), timeout=5) as sock:
        began, sent = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            sent += sock.send(chunk)
        return sent / (time.monotonic() - began)


def _connected(sock: socket.socket, host: str, port: int) -> bool:
    # Close with a reset: otherwise thousands of probes would use up the ports in TIME_WAIT.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    try:
        sock.connect((host, port))
    except OSError:
        return False
    return True


def client() -> None:
    print("READY", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        if "watch" in request:
            answer: object = watch(*request["watch"])
        elif "first" in request:
            answer = [first(host, port) for host, port in request["first"]]
        else:
            answer = stream(*request["stream"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        client()
