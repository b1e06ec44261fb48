"""A balancer in front of a real API server that breaks: `python -m … PORT SERVER FOLDER`.

FOLDER/fault names what is answered in the API server's place: "list KIND", "watch KIND" or "stream KIND" of
tests/fakes/nonsense.py, nothing when the file is missing. A new fault ends all watches. FOLDER/answered counts what was
answered with a fault.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import aiohttp
from aiohttp import web

from nodelib.kube.streaming_list import END
from tests.fakes.nonsense import LISTS, STREAMS, WATCHES, Nonsense


class Balancer:
    def __init__(self, server: str, folder: Path) -> None:
        self.server, self.folder = server, folder
        self.fault, self.answered = "", 0
        self.watches: set[asyncio.Task[object]] = set()
        self.session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False, limit=0), auto_decompress=True)

    async def follow_fault(self) -> None:
        while True:
            path = self.folder / "fault"
            fault = path.read_text() if path.exists() else ""
            if fault != self.fault:
                self.fault, self.answered = fault, 0
                for task in self.watches:
                    task.cancel()
            (self.folder / "answered").write_text(f"{self.fault}={self.answered}")
            await asyncio.sleep(0.05)

    def nonsense(self, watch: bool, request: web.Request) -> Nonsense | None:
        where, _, kind = self.fault.partition(" ")
        if not where or request.method != "GET":
            return None
        if kind == "objects that were not asked for" and not any("Selector" in name for name in request.query):
            return None  # whoever asks for all objects has to take them
        if where == "watch":
            return WATCHES[kind] if watch else None
        if where == "stream" and "sendInitialEvents" in request.query:
            return STREAMS[kind]
        if watch:
            return WATCHES["an event that says so"]
        return LISTS[kind] if where == "list" else None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        watch = "watch" in request.query
        nonsense = self.nonsense(watch, request)
        headers = {name: request.headers[name] for name in ("Authorization", "Content-Type") if name in request.headers}
        url = self.server + request.path_qs
        async with self.session.request(
            request.method, url, headers=headers, data=await request.read(), timeout=aiohttp.ClientTimeout(total=None)
        ) as true:
            if nonsense is not None:
                self.answered += 1
                return await nonsense(request, await _true(request, true))
            response = web.StreamResponse(status=true.status, headers={"Content-Type": true.headers["Content-Type"]})
            await response.prepare(request)
            task = asyncio.current_task()
            assert task is not None
            if watch:
                self.watches.add(task)
            try:
                async for chunk in true.content.iter_any():
                    await response.write(chunk)
            finally:
                self.watches.discard(task)
            return response


async def _true(request: web.Request, answer: aiohttp.ClientResponse) -> bytes:
    """A list, or initial events; nothing of another watch."""
    if "watch" not in request.query:
        return await answer.read()
    lines: list[bytes] = []
    while "sendInitialEvents" in request.query and not (lines and END.encode() in lines[-1]):
        lines.append(await answer.content.readuntil())
    return b"".join(lines)


async def _main(port: str, server: str, folder: str) -> None:
    balancer = Balancer(server, Path(folder))
    app = web.Application(client_max_size=1 << 26)
    app.router.add_route("*", "/{tail:.*}", balancer.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(port)).start()
    print("balancing", flush=True)
    await balancer.follow_fault()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
