"""HTTP requests of lifecycle hooks. Certificates are not verified, as upstream does it: they are the pod's own."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from nodelib.errors import Temporary

_LIMIT = 10 * 1024  # bytes that are read of an answer
_TIMEOUT = 60.0  # seconds


class HttpHooks:
    """agent.pods.ports.HttpGet. Each request has its own session, so no connection stays open."""

    async def get(self, url: str, headers: Mapping[str, str]) -> None:
        try:
            await self._send(url, headers)
        except aiohttp.ClientConnectorSSLError:
            # The server of an https hook answered in plain HTTP: try that, as upstream does (LifecycleHTTPFallback).
            plain = url.replace("https://", "http://", 1)
            kept = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            await self._send_checked(plain, kept)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Temporary(str(error) or type(error).__name__, obj=url) from error

    async def _send_checked(self, url: str, headers: Mapping[str, str]) -> None:
        try:
            await self._send(url, headers)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Temporary(str(error) or type(error).__name__, obj=url) from error

    async def _send(self, url: str, headers: Mapping[str, str]) -> None:
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, headers=headers, ssl=False) as response,
        ):
            await response.content.read(_LIMIT)
