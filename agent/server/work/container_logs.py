"""/containerLogs: what a container wrote, read once or followed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

from aiohttp import web

from agent.common.model.errors import CriError, CriNotFound, CriUnavailable
from agent.common.model.pods import ObservedPod, Pod, RunState
from agent.common.work.gate import Gate
from agent.logs.model import LogOptions
from agent.logs.plan import log_options as plan
from agent.logs.plan.log_lines import LineFilter
from agent.server.work.dependencies import ServerDeps
from agent.server.work.responses import Refused, find_pod
from nodelib.clock import Clock
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

_HEADER_WAIT = 0.2  # seconds


class ContainerLogs:
    """GET /containerLogs/{namespace}/{pod}/{container}

    Parts of logs are worked on one at a time, and between two of them the event loop does all else that is due: a part
    takes milliseconds, and hundreds of readers at once would hold up probes and starts of all pods for seconds.
    """

    def __init__(self, deps: ServerDeps, clock: Clock) -> None:
        self._turns = Gate(1, longest=None)
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
        """Container id and log path. Raises Refused (400) with upstream's texts."""
        status = self._deps.pods.status(pod.uid) or pod.status
        try:
            full = plan.container_id(pod.name, status, container, previous)
        except NodewrightError as error:
            raise Refused(400, error.message) from error
        identity = full.rpartition("://")[2]
        observed = self._deps.pods.observed(pod.uid)
        known = next((found for found in observed.containers if found.id == identity and found.log_path), None)
        if known is not None:
            return identity, known.log_path
        try:
            return identity, (await self._deps.runtime.container_status(identity)).log_path
        except CriError as error:
            log.warning("log of %s[%s]: %s", pod.full_name, container, error)
            raise Refused(400, f"unable to retrieve container logs for {full}") from error

    def _lines(self, pod: Pod, identity: str, path: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        if not options.follow:
            return self._deps.edges.logs.read(path, options.tail_lines, pod.namespace)

        async def is_running(sure: bool) -> bool:
            return await self._is_running(pod.uid, identity, sure)

        return self._deps.edges.logs.follow(path, options.tail_lines, is_running, pod.namespace)

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
        self, request: web.Request, options: LogOptions, lines: AsyncGenerator[bytes, None]
    ) -> web.StreamResponse:
        wanted = LineFilter(options)
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        response.enable_chunked_encoding()
        # Wait for the first lines before sending the header, so that a log that cannot be opened is still a 400.
        # A client that follows a silent container gets its header after a moment.
        first = asyncio.ensure_future(_first(lines))
        try:
            await asyncio.wait({first}, timeout=_HEADER_WAIT)
            if not first.done() or first.exception() is None:
                await response.prepare(request)
            chunk = await first
            while chunk and not wanted.done:
                async with self._turns.place(group=request.match_info["namespace"]):
                    out = wanted.feed(chunk)
                    await asyncio.sleep(0)
                if out:
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
            log.warning("%d lines of %s are not in the CRI log format and were skipped", wanted.malformed, request.path)
        await response.write_eof()
        return response


async def _first(lines: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(lines, b"")
