"""What every request passes through: errors as answers, authentication and authorization, the list of open streams."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from agent.server.work.auth import Auth
from agent.server.work.responses import Refused, text
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STREAMS = ("/exec/", "/attach/", "/portForward/", "/containerLogs/")
_RETRY_AFTER = "60"  # seconds that a runtime keeps an unused streaming token


_BEGUN = web.RequestKey("begun", bool)


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into an answer with upstream's status and text.

    Once an answer has begun there is none: a second one would be text in the middle of the first, for whose end the
    client would wait. The connection is closed, so that it sees that there is no end.
    """
    try:
        return await _answer(request, handler)
    except _TooLate as error:
        if request.transport is not None:
            request.transport.close()
        raise ConnectionResetError(f"the answer had begun: {error}") from error


class _TooLate(Exception):
    """The error cannot be told any more."""


async def note_begun(request: web.Request, _: web.StreamResponse) -> None:
    """An application that has answer_errors calls it for each answer (on_response_prepare)."""
    request[_BEGUN] = True


async def _answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except Refused as error:
        _check_in_time(request, error)
        answer = text(error.status, error.message)
        if error.status == 429:
            answer.headers["Retry-After"] = _RETRY_AFTER
        return answer
    except web.HTTPException as error:
        if error.status == 404:
            return text(404, "404: Page Not Found\n")
        if error.status == 405:
            answer = text(405, "Method Not Allowed")
            answer.headers["Allow"] = error.headers.get("Allow", "GET")
            return answer
        raise
    except NodewrightError as error:
        log.warning("%s %s: %s", request.method, request.path, error)
        _check_in_time(request, error)
        return text(500, f"{error}\n")
    except ConnectionError:
        raise
    except Exception as error:
        log.exception("%s %s failed: this is a bug", request.method, request.path)
        _check_in_time(request, error)
        return text(500, "internal error: the log of this kubelet says more\n")


def _check_in_time(request: web.Request, error: Exception) -> None:
    if request.get(_BEGUN):
        raise _TooLate(str(error)) from error


async def remove_server_header(request: web.Request, response: web.StreamResponse) -> None:
    # Upstream's server does not name itself either.
    response.headers.pop("Server", None)


def authorize(auth: Auth) -> Middleware:
    """Answer 401 to unknown users and 403 to those that may not do what they ask."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Router and reviewer must understand the same path, and no client of the kubelet needs dot segments.
        if any(segment in (".", "..") for segment in request.path.split("/")):
            return text(400, "paths with dot segments are not served\n")
        user = await auth.user(request)
        if user is None:
            return text(401, "Unauthorized")
        refusal = await auth.refusal(user, request.method, request.path)
        return await handler(request) if refusal is None else text(*refusal)

    return check


class OpenStreams:
    """The requests that may last for hours: how many there are, and all of them, to be cancelled when the server stops.

    `most` of all pods, `most_of_one` of the pods of a namespace: each holds one of the server's connections for as long
    as its client likes, and whoever may follow logs in one namespace could hold all of them. Upstream has no limit of
    connections.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._tasks: set[asyncio.Task[object]] = set()
        self._namespaces: Counter[str] = Counter()

    def filter(self) -> Middleware:
        @web.middleware
        async def track(request: web.Request, handler: Handler) -> web.StreamResponse:
            task = asyncio.current_task()
            if task is None or not request.path.startswith(_STREAMS):
                return await handler(request)
            namespace = request.match_info.get("namespace", "")
            self._check_room(namespace)
            self._tasks.add(task)
            self._namespaces[namespace] += 1
            try:
                return await handler(request)
            finally:
                self._tasks.discard(task)
                self._namespaces -= Counter([namespace])

        return track

    async def cancel(self, _: web.Application) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    def _check_room(self, namespace: str) -> None:
        """Raises Refused (429)."""
        for count, most, whose in (
            (self._namespaces[namespace], self._most_of_one, f"pods of namespace {namespace}"),
            (len(self._tasks), self._most, "pods of this node"),
        ):
            if count >= most:
                raise Refused(429, f"{most} logs, commands and ports of the {whose} are open already: close some")
