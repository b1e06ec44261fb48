"""Requests a URL several times and prints the answers as JSON; run by `up` inside a node's network namespace.

Standard library only, like nsinit: `python -I -S probe.py ADDRESS PORT PATH TIMES SECONDS WANT`. A PATH "dns:NAME" asks
the DNS server at ADDRESS for the A record of NAME instead; the answer is then the response code.
"""

import json
import socket
import struct
import sys
import time

_MOST = 1 << 20  # bytes of an answer: whoever may change the Service chooses who answers


def ask(address: str, port: int, path: str, timeout: float) -> str:
    """The body of one GET over a new connection. Raises OSError without a good answer."""
    with socket.create_connection((address, port), timeout) as connection:
        connection.settimeout(timeout)
        host = f"[{address}]" if ":" in address else address
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        connection.sendall(request.encode())
        answer = b""
        deadline = time.monotonic() + timeout
        while chunk := connection.recv(65536):
            answer += chunk
            if len(answer) > _MOST or time.monotonic() > deadline:
                raise OSError("the answer has no end")
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise OSError(f"answered {head[:60].decode(errors='replace')!r}")
    return body.decode(errors="replace")


def resolve(address: str, port: int, name: str, timeout: float) -> str:
    """The response code ("0": found) of one DNS query (RFC 1035) over UDP. Raises OSError without an answer."""
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.rstrip(".").split("."))
    query = struct.pack(">HHHHHH", 4711, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as connection:
        connection.settimeout(timeout)
        connection.connect((address, port))
        connection.send(query)
        answer = connection.recv(4096)
    code = answer[3] & 15
    if code != 0:
        raise OSError(f"DNS answered with code {code}")
    return str(code)


def once(address: str, port: int, path: str, timeout: float) -> str:
    """One request of either kind."""
    if path.startswith("dns:"):
        return resolve(address, port, path.removeprefix("dns:"), min(timeout, 0.3))
    return ask(address, port, path, timeout)


def main() -> int:
    """Stops early when there are WANT different answers; prints only the last error."""
    address, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    times, seconds, want = int(sys.argv[4]), float(sys.argv[5]), int(sys.argv[6])
    deadline = time.monotonic() + seconds
    answers: list[str] = []
    error = ""
    for _ in range(times):
        if time.monotonic() > deadline or len(set(answers)) >= want:
            break
        try:
            answers.append(once(address, port, path, max(0.1, min(2.0, deadline - time.monotonic()))))
        except OSError as failure:
            error = str(failure)
            time.sleep(0.05)
    json.dump({"answers": answers, "error": error}, sys.stdout)
    return 0 if answers else 1


if __name__ == "__main__":
    sys.exit(main())
