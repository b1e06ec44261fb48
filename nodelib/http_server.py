"""HTTP servers for a daemon's health, metrics and the like: GET only, one way to start any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import orjson
from aiohttp import web

from nodelib.errors import Temporary

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_NO_SNIFF = {"X-Content-Type-Options": "nosniff"}


async def start(routes: Mapping[str, Handler], host: str, port: int, what: str) -> web.AppRunner:
    """Serve GET `routes` until cleanup() of the result. Raises Temporary when the port cannot be opened."""
    app = web.Application()
    for path, handler in routes.items():
        app.router.add_get(path, handler)
    # Answers take milliseconds: closing a port must not hold up a sync for a minute because a client is silent.
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, reuse_address=True).start()
    except OSError as error:
        await runner.cleanup()
        raise Temporary(
            str(error),
            obj=what,
            step=f"listen on {host}:{port}",
            action="Free the port or configure another one.",
        ) from error
    return runner


async def serve(routes: Mapping[str, Handler], host: str, port: int, what: str) -> None:
    """Serve until cancelled. Raises Temporary when the port cannot be opened."""
    runner = await start(routes, host, port, what)
    try:
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=orjson.dumps(body),
        status=status,
        content_type="application/json",
        headers={**_NO_SNIFF, **(headers or {})},
    )


def text_response(text: str | bytes, content_type: str = "text/plain") -> web.Response:
    body = text.encode() if isinstance(text, str) else text
    return web.Response(body=body, content_type=content_type, charset="utf-8", headers=_NO_SNIFF)
