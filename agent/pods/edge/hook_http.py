"""HTTP requests of lifecycle hooks. Certificates are not verified: a pod's own, as upstream has it."""

from __future__ import annotations

from collections.abc import Mapping

import aiohttp

from nodelib.errors import Temporary

_LIMIT = 10 * 1024  # bytes of an answer that are read
_TIMEOUT = 60.0  # seconds


class HttpHooks:
    """agent.pods.ports.HttpGet: a session for each request, no connection stays open."""

    async def get(self, url: str, headers: Mapping[str, str]) -> None:
        try:
            await self._send(url, headers)
        except aiohttp.ClientConnectorSSLError:
            # An https hook answered in plain HTTP: upstream tries that (LifecycleHTTPFallback).
            plain = url.replace("https://", "http://", 1)
            kept = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            await self._translated(plain, kept)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Temporary(str(error) or type(error).__name__, obj=url) from error

    async def _translated(self, url: str, headers: Mapping[str, str]) -> None:
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
