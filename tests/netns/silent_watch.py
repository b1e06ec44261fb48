"""Programs that tests of a silent API server run in namespaces: a server with a watch, and a client that follows it.

`python -m tests.netns.silent_watch serve|follow ADDRESS`: `follow` prints a line for each event, and one with the
seconds since the last event when the connection is given up.
"""

from __future__ import annotations

import asyncio
import sys
import time

from aiohttp import web

from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import ApiUnreachable, KubeClient

PORT = 8001
_EVENT = b'{"type":"ADDED","object":{"metadata":{"name":"one","uid":"1","resourceVersion":"7"}}}\n'


async def _serve(address: str) -> None:
    async def watch(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(_EVENT)
        await asyncio.sleep(3600)
        return response

    app = web.Application()
    app.router.add_get("/watched", watch)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, address, PORT).start()
    print("serving", flush=True)
    await asyncio.sleep(3600)


async def _follow(address: str) -> None:
    client = KubeClient(ClusterAccess(f"http://{address}:{PORT}"), user_agent="test", timeout=5)
    while True:
        seen = time.monotonic()
        try:
            async for event in client.stream("/watched", {}):
                seen = time.monotonic()
                print("event", event["type"], flush=True)
        except ApiUnreachable as error:
            print(f"lost {time.monotonic() - seen:.2f} {error}", flush=True)
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run({"serve": _serve, "follow": _follow}[sys.argv[1]](sys.argv[2]))
