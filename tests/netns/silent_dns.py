"""Runs in a network and mount namespace of its own, where the only name server never answers (test_resolver_starved).

Prints one JSON object: seconds that the loop's own resolution took while probes and hooks ask for silent names, and
seconds that a probe of a good name took meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from agent.probes.edge import ProbeIo
from agent.probes.model import HttpRequest, TcpRequest

_API = "api.cluster.example"
_PROBES = 12
_PATIENCE = 20.0  # seconds; more than four threads that wait for a silent server take to be free again


def _isolate(folder: Path) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for name, text in (
        ("resolv.conf", "nameserver 127.0.0.1\n"),
        ("hosts", f"127.0.0.1 localhost {_API} good.example\n"),
        ("nsswitch.conf", "hosts: files dns\n"),
    ):
        (folder / name).write_text(text)
        if os.path.exists(f"/etc/{name}"):
            subprocess.run(["mount", "--bind", str(folder / name), f"/etc/{name}"], check=True)


async def _measure(silent: socket.socket) -> dict[str, Any]:
    from agent.pods.edge.hook_http import HttpHooks  # what is measured

    io, hooks, loop = ProbeIo(None), HttpHooks(), asyncio.get_running_loop()  # type: ignore[arg-type]
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def probing(number: int) -> None:
        while True:
            await io.run(HttpRequest("http", f"slow{number}.example.com", 80, "/", ()), "x", 1.0, pod="evil")
            await io.run(TcpRequest(f"slow{number}.example.com", 80), "x", 1.0, pod="evil")

    tasks: list[asyncio.Task[Any]] = [asyncio.create_task(probing(number)) for number in range(_PROBES)]
    for number in range(_PROBES):
        tasks.append(asyncio.create_task(_ignore(hooks.get(f"http://hook{number}.example.com/", {}))))
    await loop.run_in_executor(None, silent.recvfrom, 512)  # somebody has asked the silent server
    await asyncio.sleep(1)
    own, began = [], time.monotonic()
    for _ in range(3):
        began = time.monotonic()
        try:
            await asyncio.wait_for(loop.getaddrinfo(_API, 6443), _PATIENCE)
        except TimeoutError:
            pass
        own.append(time.monotonic() - began)
    began = time.monotonic()
    outcome = await io.run(TcpRequest("good.example", port), "y", _PATIENCE, pod="good")
    threads = len(os.listdir("/proc/self/task"))
    return {
        "own": max(own),
        "good": time.monotonic() - began,
        "verdict": outcome.verdict.value,
        "threads": threads,
    }


async def _ignore(work: Any) -> None:
    try:
        await work
    except Exception as error:
        print(error, file=sys.stderr)


def main() -> None:
    _isolate(Path(sys.argv[1]))
    silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    silent.bind(("127.0.0.1", 53))
    print(json.dumps(uvloop.new_event_loop().run_until_complete(_measure(silent))), flush=True)
    os._exit(0)  # not waiting for threads that still ask


if __name__ == "__main__":
    main()
