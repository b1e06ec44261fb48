"""Requests URLs over and over, each on a new connection, until stdin ends; then prints the results as JSON.

Standard library only, with -I -S: it runs in otherwise empty network namespaces. A request that fails is
counted, not repeated.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import threading
import time
from urllib.parse import urlsplit

_LIMIT = 5.0  # seconds for a request; a SYN that is lost is sent again after one


def ask(url: str) -> str:
    """The answer's body. Raises OSError or ValueError."""
    parts = urlsplit(url)
    address = (parts.hostname or "", parts.port or 80)
    with socket.create_connection(address, timeout=_LIMIT) as connection:
        path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        connection.sendall(f"GET {path} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        chunks = []
        while chunk := connection.recv(65536):
            chunks.append(chunk)
    head, _, body = b"".join(chunks).partition(b"\r\n\r\n")
    if head.split(b" ", 2)[1:2] != [b"200"]:
        raise ValueError(f"answered {head[:60]!r}")
    return body.decode()


def keep_asking(url: str, pause: float, stop: threading.Event, results: list[tuple[float, float, str, str]]) -> None:
    while not stop.is_set():
        began = time.monotonic()
        try:
            answer, failure = ask(url), ""
        except (OSError, ValueError) as error:
            answer, failure = "", f"{url}: {error!r}"
        results.append((began, time.monotonic() - began, answer, failure))
        stop.wait(pause)


def main() -> None:
    pause, urls = float(sys.argv[1]), sys.argv[2:]
    stop, results = threading.Event(), []  # type: ignore[var-annotated]
    threads = [threading.Thread(target=keep_asking, args=(url, pause, stop, results)) for url in urls]
    for thread in threads:
        thread.start()
    select.select([sys.stdin], [], [])
    stop.set()
    for thread in threads:
        thread.join()
    by: dict[str, int] = {}
    for _, _, answer, _ in results:
        if answer:
            by[answer] = by.get(answer, 0) + 1
    failed = [failure for _, _, _, failure in results if failure]
    print(json.dumps({"asked": len(results), "failed": failed, "by": by, "slowest": max(r[1] for r in results)}))


if __name__ == "__main__":
    main()
