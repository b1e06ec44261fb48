"""A thin asynchronous client of the Kubernetes API: takes paths, returns decoded JSON.

It uses plain dicts, because the official package's model classes cost each daemon 22 MB of memory, 0.4 s of start-up,
and a conversion per watch event. Verbs and content types follow the API concepts reference (RFC 6902, RFC 7386,
strategic merge, apply).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Self

import aiohttp
import orjson

from nodelib import files
from nodelib.json_values import Json
from nodelib.kube import answers, dial
from nodelib.kube.access import ClusterAccess
from nodelib.kube.answers import Allowance
from nodelib.kube.bodies import bounded, lines, understood
from nodelib.kube.errors import ApiError, ApiUnreachable, UnexpectedAnswer
from nodelib.kube.paths import is_plain
from nodelib.kube.pool import Pool
from nodelib.kube.tls import tls_context
from nodelib.kube.tls_errors import explain
from nodelib.kube.turns import Turns
from nodelib.rate_limiter import RateLimiter

if TYPE_CHECKING:
    from nodelib.kube.request_metrics import RequestMetrics

__all__ = ["SMALLEST_PAGE", "ApiError", "ApiUnreachable", "KubeClient", "UnexpectedAnswer"]

log = logging.getLogger(__name__)

# Objects in one answer after some that could not be used, which may have been too large: an object of 1.5 MiB, the most
# that etcd takes, is up to 9 MiB as JSON, where each byte may be written as six.
SMALLEST_PAGE = 2

_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_TOKEN_LIMIT = 64 * 1024  # bytes
_TRIES = 10  # of one call that is answered with Retry-After, as client-go
_LEAST_WAIT = 0.1  # seconds between two of them
_WATCH_SILENCE = 180.0  # seconds
_AFTER_ITS_END = 60.0  # seconds that a watch may go on after the time that it was asked for
_SHOWN = 200  # characters of a path that is refused
_LONG_WAIT = 1.0  # seconds for the own limit, after which the log says so


class KubeClient:
    """A connection pool to one API server, a context manager. Every call raises ApiError or ApiUnreachable.

    `limit`: each call waits for its turn, and each of its tries; watches do not (client-go's rest.Request). None: none.
    `turns`: how many calls are under way at a time, watches aside. None: any number.
    `streaming_lists`: reflectors get their lists as the first events of watches (gate WatchListClient).
    `measured` counts the requests.
    """

    def __init__(
        self,
        access: ClusterAccess,
        *,
        user_agent: str,
        timeout: float = 30,
        limit: RateLimiter | None = None,
        turns: Turns | None = None,
        streaming_lists: bool = True,
        measured: RequestMetrics | None = None,
    ) -> None:
        self.access = access
        self.streaming_lists = streaming_lists
        self._timeout, self._limit, self._turns, self._measured = timeout, limit, turns, measured
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._pool: Pool | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Json, params: Mapping[str, str] | None = None) -> Json:
        return await self.request("POST", path, body=body, params=params)

    async def put(self, path: str, body: Json) -> Json:
        return await self.request("PUT", path, body=body)

    async def patch(
        self, path: str, body: Json | list[Json], kind: str = "merge", params: Mapping[str, str] | None = None
    ) -> Json:
        return await self.request("PATCH", path, body=body, content_type=_PATCH_TYPES[kind], params=params)

    async def delete(self, path: str, body: Json | None = None) -> Json:
        return await self.request("DELETE", path, body=body)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Json | list[Json] | None = None,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Json:
        """One call. Raises ApiError if the server answers with a failure, ApiUnreachable if it does not answer.

        Waits and tries again when the server asks for it by Retry-After, as long as the client's timeout allows.
        """
        data = orjson.dumps(body) if body is not None else None
        sent = {"Content-Type": content_type} if body is not None else {}
        loop = asyncio.get_running_loop()
        await self._turn(method, path)
        deadline = loop.time() + self._timeout
        for number in range(1, _TRIES + 1):
            try:
                async with self._place(path):
                    return await self._once(method, path, data, sent, params or {})
            except ApiError as error:
                wait = max(error.retry_after or 0.0, _LEAST_WAIT)
                if error.retry_after is None or number == _TRIES or loop.time() + wait > deadline:
                    raise
            await asyncio.sleep(wait)
            await self._turn(method, path)
        raise AssertionError("unreachable: the last try returns or raises")

    async def _once(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str], params: Mapping[str, str]
    ) -> Json:
        try:
            async with (
                self._open() as pool,
                pool.session.request(
                    method,
                    self._url(method, path),
                    data=data,
                    params=params,
                    headers={**headers, **self._authorization()},
                    server_hostname=self.access.tls_server_name,
                    allow_redirects=False,  # an API server never redirects, and credentials are for it alone
                ) as response,
            ):
                raw = await bounded(response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(method, path, error) from error
        except answers.Unusable as error:
            raise self._unexpected(method, path, error) from error
        try:
            if response.status >= 300:
                raise answers.failure(response.status, method, path, raw, response.headers.get("Retry-After"))
            return await understood(partial(answers.success, method, path, params, response.content_type), raw)
        except answers.Unusable as error:
            raise self._unexpected(method, path, error) from error

    def _place(self, path: str) -> AbstractAsyncContextManager[None]:
        return self._turns.take(path) if self._turns is not None else nullcontext()

    async def _turn(self, method: str, path: str) -> None:
        if self._limit is not None and (took := await self._limit.wait()) > _LONG_WAIT:
            log.info("%s %s: waited %.1f s for the own limit of requests", method, path, took)

    async def text(self, path: str, params: Mapping[str, str], *, limit: int) -> str:
        """At most `limit` bytes of an answer that is no JSON, such as a log. Raises as request()."""
        await self._turn("GET", path)
        try:
            async with (
                self._open() as pool,
                pool.session.get(
                    self._url("GET", path),
                    params=params,
                    headers={"Accept": "*/*", **self._authorization()},
                    server_hostname=self.access.tls_server_name,
                    allow_redirects=False,
                ) as response,
            ):
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) >= limit:
                        break
                if response.status >= 300:
                    raise answers.failure(response.status, "GET", path, bytes(body[:limit]), None)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable("GET", path, error) from error
        except answers.Unusable as error:
            raise self._unexpected("GET", path, error) from error
        return bytes(body[:limit]).decode(errors="replace")

    async def stream(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        on_open: Callable[[], None] | None = None,
        allowance: Allowance | None = None,
    ) -> AsyncGenerator[Json, None]:
        """Watch events as they arrive, until the server ends the watch or reconnect() does. Raises as request().

        `on_open` is called when the server has accepted the watch, which may be long before its first event.
        """
        # A watch may be silent, but bookmarks arrive about every minute: after a longer silence the peer has stopped.
        # What sends a byte now and then is not silent, and has an end nevertheless.
        asked = params.get("timeoutSeconds")
        total = float(asked) + _AFTER_ITS_END if asked else None
        limits = aiohttp.ClientTimeout(total=total, sock_connect=self._timeout, sock_read=_WATCH_SILENCE)
        try:
            pool, headers, reader = self._open(), self._authorization(), None
        except OSError as error:  # the certificate or the token does not exist yet
            raise self._unreachable("WATCH", path, error) from error
        try:
            async with (
                pool,
                pool.session.get(
                    self._url("WATCH", path),
                    params={**params, "watch": "true"},
                    headers={**headers, "Accept-Encoding": "identity"},
                    timeout=limits,
                    server_hostname=self.access.tls_server_name,
                    allow_redirects=False,
                ) as response,
            ):
                if response.status >= 300:
                    raw = await bounded(response)
                    raise answers.failure(response.status, "WATCH", path, raw, response.headers.get("Retry-After"))
                if response.content_type != "application/json":
                    raise answers.Unusable(f"a watch of type {response.content_type}")
                reader = response.content
                pool.streams.add(reader)
                if on_open is not None:
                    on_open()
                async for line in lines(reader):
                    if allowance is not None:
                        allowance.spend(len(line))
                    yield await understood(partial(answers.event, path, params), line)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if not pool.retired:
                raise self._unreachable("WATCH", path, error) from error
        except answers.Unusable as error:
            if not pool.retired:
                raise self._unexpected("WATCH", path, error) from error
        finally:
            if reader is not None:
                pool.streams.discard(reader)

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.session.close()
            self._pool = None

    async def reconnect(self) -> None:
        """Use new connections from now on (the certificate has changed). Watches end, running calls do not."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.retire()

    def _open(self) -> Pool:
        if self._pool is None or self._pool.session.closed:
            context = tls_context(self.access)
            connector = aiohttp.TCPConnector(
                ssl=context, limit=0, keepalive_timeout=60, socket_factory=dial.open_socket
            )
            self._pool = Pool(
                aiohttp.ClientSession(
                    connector=connector,
                    headers=self._headers,
                    timeout=aiohttp.ClientTimeout(total=self._timeout),
                    read_bufsize=1 << 20,
                    trace_configs=[self._measured.trace] if self._measured is not None else None,
                )
            )
        return self._pool

    def _url(self, method: str, path: str) -> str:
        """Raises ApiError for a path that the HTTP library would make another one of: no object is there."""
        if not is_plain(path):
            raise ApiError(404, "NotFound", "no object can have such a name", obj=f"{method} {path[:_SHOWN]!r}")
        return self.access.server + path

    def _authorization(self) -> dict[str, str]:
        """Raises OSError: the file of the token is missing or holds none."""
        token = self.access.token
        if self.access.token_file:
            token = files.bytes_of(self.access.token_file, _TOKEN_LIMIT).decode(errors="replace").strip()
        if not token:
            return {}
        if not (token.isascii() and token.isprintable()):  # a line break in it would become another header
            raise OSError(
                f"the token in {self.access.token_file or 'the kubeconfig'} is none: it is not one line of ASCII"
            )
        return {"Authorization": f"Bearer {token}"}

    def _unreachable(self, method: str, path: str, error: Exception) -> ApiUnreachable:
        refused, advice = explain(error)
        if refused:
            return ApiUnreachable(
                refused, obj=f"API server {self.access.server}", step=f"{method} {path}", action=f"{advice}."
            )
        return ApiUnreachable(
            f"no answer: {_plainly(error)}",
            obj=f"API server {self.access.server}",
            step=f"{method} {path}",
            action="Check that the API server is running and that this node can reach it.",
        )

    def _unexpected(self, method: str, path: str, error: answers.Unusable) -> UnexpectedAnswer:
        return UnexpectedAnswer(
            f"it answered with {error}",
            obj=f"API server {self.access.server}",
            step=f"{method} {path}",
            action="Something else than an API server answers at that address, or a balancer in front of it does."
            " Nothing is concluded from this answer, and the call will be repeated.",
        )


def _plainly(error: Exception) -> str:
    """The kernel's words where it has some; aiohttp's own end in `ssl:default [Connect call failed ...]`."""
    number = getattr(error, "errno", None)
    if isinstance(error, aiohttp.ClientConnectorError) and isinstance(number, int) and number > 0:
        return f"{os.strerror(number)} ({error.host}:{error.port})"
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(error) or type(error).__name__
