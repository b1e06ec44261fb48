"""/containerLogs and /logs: what containers wrote, and the host's log folder."""

from __future__ import annotations

import asyncio
import html
import logging
import os
import stat
from collections.abc import AsyncGenerator
from urllib.parse import quote

from aiohttp import web

from agent.common.model.errors import CriError, CriNotFound, CriUnavailable
from agent.common.model.pods import ObservedPod, Pod, RunState
from agent.logs.plan import logs as plan
from agent.server.work.answers import Refused, find_pod, text
from agent.server.work.deps import ServerDeps
from nodelib.clock import Clock
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

_HEADER_WAIT = 0.2  # seconds


class ContainerLogs:
    """GET /containerLogs/{namespace}/{pod}/{container}"""

    def __init__(self, deps: ServerDeps, clock: Clock) -> None:
        self._deps = deps
        self._clock = clock

    async def get(self, request: web.Request) -> web.StreamResponse:
        try:
            options = plan.parse_options(request.query, self._clock.now())
        except plan.InvalidQuery as error:
            raise Refused(error.status, error.message) from error
        name, container = request.match_info["pod"], request.match_info["container"]
        pod = find_pod(self._deps.pods, request, f'pod "{name}" does not exist')
        if pod.container(container) is None:
            raise Refused(404, f'container "{container}" not found in pod "{name}"')
        identity, path = await self._find(pod, container, options.previous)
        return await self._send(request, options, self._lines(pod, identity, path, options))

    async def _find(self, pod: Pod, container: str, previous: bool) -> tuple[str, str]:
        """Container id and log path. Raises Refused with upstream's 400 texts."""
        status = self._deps.pods.status(pod.uid) or pod.status
        try:
            identity = plan.container_id(pod.name, status, container, previous)
        except NodewrightError as error:
            raise Refused(400, error.message) from error
        observed = self._deps.pods.observed(pod.uid)
        known = next((found for found in observed.containers if found.id == identity and found.log_path), None)
        if known is not None:
            return identity, known.log_path
        try:
            return identity, (await self._deps.runtime.container_status(identity)).log_path
        except CriError as error:
            log.warning("log of %s[%s]: %s", pod.full_name, container, error)
            raise Refused(400, f"unable to retrieve container logs for containerd://{identity}") from error

    def _lines(self, pod: Pod, identity: str, path: str, options: plan.LogOptions) -> AsyncGenerator[bytes, None]:
        if not options.follow:
            return self._deps.edges.logs.read(path, options.tail_lines)

        async def is_running(sure: bool) -> bool:
            return await self._is_running(pod.uid, identity, sure)

        return self._deps.edges.logs.follow(path, options.tail_lines, is_running)

    async def _is_running(self, uid: str, identity: str, sure: bool) -> bool:
        observed: ObservedPod = self._deps.pods.observed(uid)
        known = next((found for found in observed.containers if found.id == identity), None)
        if known is not None and (known.state is RunState.EXITED or not sure):
            return known.state is not RunState.EXITED
        try:
            return (await self._deps.runtime.container_status(identity)).state is RunState.RUNNING
        except CriNotFound:
            return False
        except CriUnavailable:
            return True  # containers run on while their runtime restarts

    async def _send(
        self, request: web.Request, options: plan.LogOptions, lines: AsyncGenerator[bytes, None]
    ) -> web.StreamResponse:
        wanted = plan.LineFilter(options)
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        response.enable_chunked_encoding()
        # The first lines before the header: a log that cannot be opened is still a clean 400. The follower of a
        # silent container gets its header at once.
        first = asyncio.ensure_future(_first(lines))
        try:
            await asyncio.wait({first}, timeout=_HEADER_WAIT)
            if not first.done() or first.exception() is None:
                await response.prepare(request)
            chunk = await first
            while chunk and not wanted.done:
                if out := wanted.feed(chunk):
                    await response.write(out)
                chunk = b"" if wanted.done else await anext(lines, b"")
        except NodewrightError as error:
            if not response.prepared:
                raise Refused(400, error.message) from error
            await response.write(f"{error}\n".encode())
        finally:
            first.cancel()
            await asyncio.wait({first})
            await lines.aclose()
        if wanted.malformed:
            log.warning(
                "%d lines of %s are not in the CRI log format and were left out", wanted.malformed, request.path
            )
        await response.write_eof()
        return response


async def _first(lines: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(lines, b"")


class SystemLogs:
    """GET /logs/...: files and folders below the host's log folder, and nothing that a link leads out of it to."""

    def __init__(self, root: str) -> None:
        self._root = os.path.realpath(root)

    async def get(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("query"):
            raise Refused(400, "the node log query is not enabled on this kubelet (enableSystemLogQuery)")
        wanted = request.match_info.get("path", "")
        path = os.path.realpath(os.path.join(self._root, wanted))
        if os.path.commonpath((path, self._root)) != self._root:
            raise Refused(404, "404 page not found\n")
        try:
            mode = os.stat(path).st_mode
        except OSError as error:
            raise Refused(404, "404 page not found\n") from error
        if stat.S_ISDIR(mode):
            return await asyncio.to_thread(_listing, path)
        if not stat.S_ISREG(mode):
            raise Refused(404, "404 page not found\n")
        return web.FileResponse(path, headers={"Content-Type": "text/plain; charset=utf-8"})


def _listing(path: str) -> web.Response:
    with os.scandir(path) as entries:
        names = sorted(entry.name + ("/" if entry.is_dir() else "") for entry in entries)
    links = "".join(f'<a href="{quote(name)}">{html.escape(name)}</a>\n' for name in names)
    return web.Response(text=f"<pre>\n{links}</pre>\n", content_type="text/html")


async def disabled_logs(request: web.Request) -> web.Response:
    return text(405, "logs endpoint is disabled.\n")
