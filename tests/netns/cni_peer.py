"""The two ends of a conversation, without any tool.

`serve tcp|udp PORT NAME`, `ask tcp|udp HOST PORT [SOURCE]`.

The server answers with its own name (argv) and the address it saw the client at.
"""

import socket
import sys


def serve(kind: str, port: int, name: str) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("0.0.0.0", port))
    if kind == "tcp":
        sock.listen(64)
    print("READY", flush=True)
    while True:
        if kind == "tcp":
            connection, peer = sock.accept()
            connection.sendall(f"{name} {peer[0]}".encode())
            connection.close()
        else:
            _, peer = sock.recvfrom(100)
            sock.sendto(f"{name} {peer[0]}".encode(), peer)


def ask(kind: str, host: str, port: int, source: str = "") -> int:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
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
    if sys.argv[1] == "serve":
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    sys.exit(ask(sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:]))
