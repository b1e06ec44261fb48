"""Client and server of a TCP or UDP exchange; needs no other program.

`serve tcp|udp PORT NAME`, `ask tcp|udp HOST PORT [SOURCE]`, `sink PORT`, `send HOST PORT BYTES`.

The server answers with its own name (argv) and the address it saw the client at, in either family. A sink reads a
connection to its end and answers with how much that was; `send` says so, and the seconds it took.
"""

import socket
import sys
import time


def serve(kind: str, port: int, name: str) -> None:
    sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    sock.bind(("::", port))
    if kind == "tcp":
        sock.listen(64)
    print("READY", flush=True)
    while True:
        if kind == "tcp":
            connection, peer = sock.accept()
            connection.sendall(f"{name} {peer[0].removeprefix('::ffff:')}".encode())
            connection.close()
        else:
            _, peer = sock.recvfrom(100)
            sock.sendto(f"{name} {peer[0].removeprefix('::ffff:')}".encode(), peer)


def sink(port: int) -> None:
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        print("READY", flush=True)
        while True:
            connection, _ = server.accept()
            total = 0
            while chunk := connection.recv(1 << 16):
                total += len(chunk)
            connection.sendall(str(total).encode())
            connection.close()


def send(host: str, port: int, size: int) -> int:
    began = time.monotonic()
    with socket.create_connection((host, port), timeout=60) as connection:
        connection.sendall(bytes(size))
        connection.shutdown(socket.SHUT_WR)
        print(connection.recv(100).decode(), time.monotonic() - began)
    return 0


def family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def ask(kind: str, host: str, port: int, source: str = "") -> int:
    sock = socket.socket(family(host), socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    sock.settimeout(5)
    if source:
        sock.bind((source, 0))
    try:
        sock.connect((host, port))
        if kind == "udp":
            sock.send(b"?")
        print(sock.recv(100).decode())
    except OSError as error:
        print(f"no answer: {error}")
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "sink":
        sink(int(sys.argv[2]))
    if sys.argv[1] == "send":
        sys.exit(send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    sys.exit(ask(sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:]))
