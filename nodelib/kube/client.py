"""A thin asynchronous client of the Kubernetes API: takes paths, returns decoded JSON.

It uses plain dicts, because the official package's model classes cost each daemon 22 MB of memory, 0.4 s of start-up,
and a conversion per watch event. Verbs and content types follow the API concepts reference (RFC 6902, RFC 7386,
strategic merge, apply).
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Mapping

import aiohttp
import orjson

from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.kube import dial
from nodelib.kube.access import ClusterAccess
from nodelib.kube.tls_errors import explain

_PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_NOT_SERVED = "this API server does not serve that: it is an older version, or the feature is switched off"
_WATCH_LINE_LIMIT = 64 * 1024 * 1024
_WATCH_SILENCE = 180.0  # seconds


class ApiError(NodewrightError):
    """The API server answered with a failure (metav1.Status)."""

    def __init__(self, code: int, reason: str, message: str, *, obj: str = "", retry_after: float | None = None):
        super().__init__(message or reason or f"HTTP {code}", obj=obj)
        self.code = code
        self.reason = reason
        self.retry_after = retry_after

    @property
    def is_not_found(self) -> bool:
        return self.code == 404

    @property
    def is_conflict(self) -> bool:
        return self.code == 409 and self.reason != "AlreadyExists"

    @property
    def is_already_exists(self) -> bool:
        return self.code == 409 and self.reason == "AlreadyExists"

    @property
    def is_gone(self) -> bool:
        return self.code == 410 or self.reason == "Expired"

    @property
    def is_forbidden(self) -> bool:
        return self.code in (401, 403)


class ApiUnreachable(Temporary):
    """No answer from the API server: connection refused, reset, timed out, or TLS failed."""


class KubeClient:
    """A connection pool to one API server. Every call raises ApiError or ApiUnreachable; close it with close()."""

    def __init__(self, access: ClusterAccess, *, user_agent: str, timeout: float = 30) -> None:
        self.access = access
        self._timeout = timeout
        self._headers = {"User-Agent": user_agent, "Accept": "application/json"}
        self._pool: _Pool | None = None

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
        """One call. Raises ApiError if the server answers with a failure, ApiUnreachable if it does not answer."""
        headers = self._authorization()
        if body is not None:
            headers["Content-Type"] = content_type
        data = orjson.dumps(body) if body is not None else None
        try:
            async with (
                self._open() as pool,
                pool.session.request(
                    method,
                    self.access.server + path,
                    data=data,
                    params=params,
                    headers=headers,
                    server_hostname=self.access.tls_server_name,
                ) as response,
            ):
                raw = await response.read()
                retry_after = response.headers.get("Retry-After")
                status = response.status
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._unreachable(method, path, error) from error
        return _decode(status, raw, f"{method} {path}", retry_after)

    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Json]:
        """Watch events as they arrive, until the server ends the watch or reconnect() does. Raises as request()."""
        headers = self._authorization()
        # A watch may be silent, but bookmarks arrive about every minute: after a longer silence the peer has stopped.
        limits = aiohttp.ClientTimeout(total=None, sock_connect=self._timeout, sock_read=_WATCH_SILENCE)
        try:
            pool, reader = self._open(), None
        except OSError as error:  # the certificate does not exist yet
            raise self._unreachable("WATCH", path, error) from error
        try:
            async with (
                pool,
                pool.session.get(
                    self.access.server + path,
                    params={**params, "watch": "true"},
                    headers=headers,
                    timeout=limits,
                    server_hostname=self.access.tls_server_name,
                ) as response,
            ):
                if response.status >= 300:
                    _decode(response.status, await response.read(), f"WATCH {path}", None)
                reader = response.content
                pool.streams.add(reader)
                async for line in _lines(reader):
                    event = orjson.loads(line)
                    if event.get("type") == "ERROR":
                        status = event.get("object") or {}
                        raise ApiError(
                            int(status.get("code") or 500),
                            status.get("reason", ""),
                            status.get("message", ""),
                            obj=f"WATCH {path}",
                        )
                    yield event
        except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError) as error:
            if not pool.retired:
                raise self._unreachable("WATCH", path, error) from error
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

    def _open(self) -> _Pool:
        if self._pool is None or self._pool.session.closed:
            context = tls_context(self.access)
            connector = aiohttp.TCPConnector(
                ssl=context, limit=0, keepalive_timeout=60, socket_factory=dial.open_socket
            )
            self._pool = _Pool(
                aiohttp.ClientSession(
                    connector=connector,
                    headers=self._headers,
                    timeout=aiohttp.ClientTimeout(total=self._timeout),
                    read_bufsize=1 << 20,
                )
            )
        return self._pool

    def _authorization(self) -> dict[str, str]:
        token = self.access.token
        if self.access.token_file:
            with open(self.access.token_file, encoding="utf-8") as file:
                token = file.read().strip()
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _unreachable(self, method: str, path: str, error: Exception) -> ApiUnreachable:
        refused, advice = explain(error)
        if refused:
            return ApiUnreachable(
                refused, obj=f"API server {self.access.server}", step=f"{method} {path}", action=f"{advice}."
            )
        return ApiUnreachable(
            f"no answer: {str(error) or type(error).__name__}",
            obj=f"API server {self.access.server}",
            step=f"{method} {path}",
            action="Check that the API server is running and that this node can reach it. The call will be repeated.",
        )


class _Pool:
    """The connections between two reconnects. Each call enters it; once retired, the last call to leave closes it."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.streams: set[aiohttp.StreamReader] = set()
        self.retired = False
        self._users = 0

    async def __aenter__(self) -> _Pool:
        self._users += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        await self._close_unused()

    async def retire(self) -> None:
        """Take no new calls and end watches: closing the session alone would leave their readers waiting forever."""
        self.retired = True
        for stream in list(self.streams):
            stream.set_exception(aiohttp.ClientConnectionError("the client reconnects"))
        await self._close_unused()

    async def _close_unused(self) -> None:
        if self.retired and not self._users:
            await self.session.close()


def tls_context(access: ClusterAccess) -> ssl.SSLContext | bool:
    """The client's TLS context for `access`, False for plain http. Raises ssl.SSLError for bad certificates."""
    if access.server.startswith("http://"):
        return False
    context = ssl.create_default_context(cadata=access.ca_data.decode("ascii") if access.ca_data else None)
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.cert_file and access.key_file:
        context.load_cert_chain(access.cert_file, access.key_file)
    elif access.cert_data and access.key_data:
        _load_inline(context, access.cert_data, access.key_data)
    return context


def _load_inline(context: ssl.SSLContext, cert: bytes, key: bytes) -> None:
    # ssl takes client certificates from files only (https://github.com/python/cpython/issues/60691).
    handle, name = tempfile.mkstemp(prefix="client-", suffix=".pem")
    try:
        os.fchmod(handle, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(cert + b"\n" + key)
        context.load_cert_chain(name)
    finally:
        os.unlink(name)


def _decode(status: int, raw: bytes, call: str, retry_after: str | None) -> Json:
    try:
        body = orjson.loads(raw) if raw else {}
    except orjson.JSONDecodeError:
        body = {"message": raw[:500].decode(errors="replace")}
    if status < 300:
        return body if isinstance(body, dict) else {"items": body}
    seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
    if not isinstance(body, dict):
        body = {}
    message = _NOT_SERVED if status == 404 and _names_nothing(body) else str(body.get("message", ""))
    raise ApiError(status, str(body.get("reason", "")), message, obj=call, retry_after=seconds)


def _names_nothing(body: Json) -> bool:
    """Whether a 404 is about the API: if only the object is missing, the Status names it in its details."""
    return not (body.get("details") or {}).get("kind")


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream, of any length (readline() refuses lines longer than its buffer)."""
    pending = bytearray()
    async for chunk in content.iter_any():
        pending += chunk
        if b"\n" in chunk:
            *whole, rest = bytes(pending).split(b"\n")
            pending = bytearray(rest)
            for line in whole:
                if line.strip():
                    yield line
        elif len(pending) > _WATCH_LINE_LIMIT:
            raise ValueError("a watch event larger than 64 MiB")
