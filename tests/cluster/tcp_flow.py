"""One TCP connection to ADDRESS PORT over which HTTP requests go until stdin ends; then the results as JSON.

Standard library only, with -I -S: it runs in otherwise empty network namespaces. It never connects a second time.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

_LIMIT = 10.0  # seconds for an answer
_PAUSE = 0.1
_REQUEST = b"GET /hostname HTTP/1.1\r\nHost: flow\r\n\r\n"


def main() -> None:
    asked, slowest, broken = 0, 0.0, ""
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=_LIMIT) as connection:
        print("READY", flush=True)
        while not select.select([sys.stdin], [], [], _PAUSE)[0]:
            began = time.monotonic()
            try:
                connection.sendall(_REQUEST)
                answer = connection.recv(65536)
            except OSError as error:
                broken = repr(error)
                break
            if b" 200 " not in answer:
                broken = f"answered {answer[:80]!r}"
                break
            asked, slowest = asked + 1, max(slowest, time.monotonic() - began)
    print(json.dumps({"asked": asked, "slowest": slowest, "broken": broken}))


if __name__ == "__main__":
    main()
