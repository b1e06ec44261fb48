"""HTTP requests of lifecycle hooks. Certificates are not verified, as upstream does it: they are the pod's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import aiohttp
from yarl import URL

from agent.common.edge.host_resolver import HostResolver
from agent.common.edge.http_get import Turns, any_certificate, get, open_session, without_turns
from nodelib.errors import Temporary

_LIMIT = 10 * 1024  # bytes that are read of an answer
_TIMEOUT = 60.0  # seconds


class HttpHooks:
    """agent.pods.ports.HttpGet. Each request has its own session, so no connection stays open.

    `turns` gives each TLS connection its turn. `on_fallback()`: an https hook was answered in plain HTTP.
    """

    def __init__(
        self,
        resolver: HostResolver | None = None,
        turns: Turns = without_turns,
        on_fallback: Callable[[], None] = lambda: None,
    ) -> None:
        self._resolver, self._tls, self._on_fallback = resolver or HostResolver(), any_certificate(), on_fallback
        self._turn = turns(self._tls)

    async def get(self, url: str, headers: Mapping[str, str], *, pod: str = "") -> None:
        try:
            await self._send(url, headers, pod)
        except aiohttp.ClientConnectorSSLError:
            # The server of an https hook answered in plain HTTP: try that, as upstream does (LifecycleHTTPFallback).
            plain = url.replace("https://", "http://", 1)
            kept = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            await self._send_checked(plain, kept, pod)
            self._on_fallback()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Temporary(str(error) or type(error).__name__, obj=url) from error

    async def _send_checked(self, url: str, headers: Mapping[str, str], pod: str) -> None:
        try:
            await self._send(url, headers, pod)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Temporary(str(error) or type(error).__name__, obj=url) from error

    async def _send(self, url: str, headers: Mapping[str, str], pod: str) -> None:
        async with (
            asyncio.timeout(_TIMEOUT),
            open_session(self._tls, self._resolver, pod, self._turn) as session,
            get(session, str(URL(url)), headers.items()) as response,
        ):
            await response.content.read(_LIMIT)
