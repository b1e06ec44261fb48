"""A GET as probes and lifecycle hooks send it: redirects are followed as long as they stay on the host.

Follows RedirectChecker(false) of pkg/probe/http/http.go, which upstream uses for both: whoever answers for a pod must
not choose where the node sends a request, and the headers of the pod with it.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from yarl import URL

from agent.common.edge.host_resolver import HostResolver, PodResolver
from nodelib.errors import Temporary
from nodelib.tls_records import StrangerContext

MOST_REDIRECTS = 10
_MOST_INTERIM = 5
_LONGEST_ANSWER = 1 << 20  # bytes; content is not read further than its readers want
Turn = Callable[[], AbstractAsyncContextManager[None]]
Turns = Callable[[StrangerContext], Turn]
_AUTO_HEADERS = ("Accept", "Accept-Encoding", "User-Agent")


def open_session(
    context: ssl.SSLContext, resolver: HostResolver, pod: str, turn: Turn = nullcontext
) -> aiohttp.ClientSession:
    """A session without cookies, kept connections, or names of other pods; `pod` is a UID. Close it in the end. Each
    TLS connection is made inside of a `turn`."""
    connector = _ShortAnswers(
        turn, ssl=context, force_close=True, limit=0, use_dns_cache=False, resolver=PodResolver(resolver, pod)
    )
    return aiohttp.ClientSession(
        connector=connector,
        skip_auto_headers=_AUTO_HEADERS,
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=_FewInterim,
    )


class _Bounded(ResponseHandler):
    """Ends a connection that says too much: what stands beside the content of an answer, such as extensions of chunks,
    has no limit in aiohttp, and is read for as long as the request may take.
    """

    _left = _LONGEST_ANSWER

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            error = aiohttp.ClientPayloadError(f"the answer has more than {_LONGEST_ANSWER} bytes")
            self.set_exception(error)
            if self._payload is not None:
                self._payload.set_exception(error)
            self.abort()
            return
        super().data_received(data)


class _ShortAnswers(aiohttp.TCPConnector):
    def __init__(self, turn: Turn, **options: Any) -> None:
        super().__init__(**options)
        self._turn = turn
        self._factory = partial(_Bounded, loop=self._loop)  # type: ignore[assignment]

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> ResponseHandler:
        async with self._turn() if req.is_ssl() else nullcontext():
            return await super()._create_connection(req, traces, timeout)


class _FewInterim(aiohttp.ClientResponse):
    """Refuses a server that goes on with interim answers: aiohttp skips them without end, Go's transport takes five."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        protocol = connection.protocol
        if protocol is not None:
            read, taken = protocol.read, 0

            async def read_few() -> Any:
                nonlocal taken
                taken += 1
                if taken > _MOST_INTERIM + 1:
                    raise aiohttp.ClientPayloadError("too many 1xx informational responses")
                return await read()

            protocol.read = read_few  # type: ignore[method-assign] # it serves one request: the session keeps none
        return await super().start(connection)


def without_turns(_: StrangerContext) -> Turn:
    """Each connects at once."""
    return nullcontext


def any_certificate() -> StrangerContext:
    """What is asked is whether the server answers, not who it is: any certificate and any cipher is accepted, but for
    those with Diffie-Hellman over finite fields, which Go does not have either (nodelib/tls_records.py)."""
    context = StrangerContext.of(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("DEFAULT:!DH:@SECLEVEL=0")
    return context


@asynccontextmanager
async def get(
    session: aiohttp.ClientSession, url: str, headers: Iterable[tuple[str, str]]
) -> AsyncIterator[aiohttp.ClientResponse]:
    """The last answer on the host of `url`, an escaped URL; a redirect to another host is such an answer.

    Raises aiohttp.ClientError, OSError and ValueError as aiohttp does, Temporary after ten redirects.
    """
    sent = tuple(headers)
    for _ in range(MOST_REDIRECTS):
        async with session.get(URL(url, encoded=True), headers=sent, allow_redirects=False) as response:
            location = response.headers.get("Location")
            further = following(url, response.status, location)
            if further is None:
                yield response
                return
            if urlsplit(location).netloc:  # a Host that the pod has set is for its own URL, as in Go's client
                sent = tuple((name, value) for name, value in sent if name.lower() != "host")
            url = further
    raise Temporary(f"stopped after {MOST_REDIRECTS} redirects", obj=url)


def following(url: str, status: int, location: str | None) -> str | None:
    """Where a redirect leads that stays on the host; None: it is the answer."""
    if not location or not 300 <= status < 400:
        return None
    there = urljoin(url, location)
    return there if urlsplit(there).hostname == urlsplit(url).hostname else None
