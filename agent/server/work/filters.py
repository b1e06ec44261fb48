"""What every request passes through: errors as answers, authentication and authorization, the list of open streams."""

from __future__ import annotations

import asyncio
import logging
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


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every error into an answer with upstream's status and text."""
    try:
        return await handler(request)
    except Refused as error:
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
        return text(500, f"{error}\n")
    except ConnectionError:
        raise
    except Exception:
        log.exception("%s %s failed: this is a bug", request.method, request.path)
        return text(500, "internal error: the log of this kubelet says more\n")


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
    """The requests that may last for hours, so that they can be cancelled when the server stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[object]] = set()

    def filter(self) -> Middleware:
        @web.middleware
        async def track(request: web.Request, handler: Handler) -> web.StreamResponse:
            task = asyncio.current_task()
            if task is None or not request.path.startswith(_STREAMS):
                return await handler(request)
            self._tasks.add(task)
            try:
                return await handler(request)
            finally:
                self._tasks.discard(task)

        return track

    async def cancel(self, _: web.Application) -> None:
        for task in tuple(self._tasks):
            task.cancel()
