"""/exec, /attach, /portForward and /run: bytes of a command or a port, between client and runtime.

Follows getExec, getAttach, getPortForward and getRun in upstream's pkg/kubelet/server/server.go. The
runtime's streaming server speaks SPDY/3.1 and WebSocket up to v4.channel.k8s.io, not v5
(k8s.io/cri-streaming 0.37), so the node does not declare ExtendWebSocketsToKubelet: the API
server translates v5 to SPDY before it comes here.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiohttp import web

from agent.common.model.pods import Pod, RunState, SandboxState
from agent.server.model import UpgradeFailed
from agent.server.plan import authz
from agent.server.work.dependencies import ServerDeps
from agent.server.work.responses import Refused, find_pod, of_error
from nodelib.errors import NodewrightError
from nodelib.text_numbers import is_number


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The streams that a client asks for."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool


def stream_options(request: web.Request) -> StreamOptions:
    """Raises Refused (400) when no stream is wanted. A terminal merges stderr into stdout."""
    query = request.query
    tty = query.get("tty") == "1"
    options = StreamOptions(
        stdin=query.get("input") == "1",
        stdout=query.get("output") == "1",
        stderr=query.get("error") == "1" and not tty,
        tty=tty,
    )
    if not (options.stdin or options.stdout or options.stderr):
        raise Refused(400, "you must specify at least 1 of stdin, stdout, stderr")
    return options


class Streams:
    """The endpoints that reach into a running container or sandbox."""

    def __init__(self, deps: ServerDeps) -> None:
        self._deps = deps

    async def exec(self, request: web.Request) -> web.StreamResponse:
        options = stream_options(request)
        pod = find_pod(self._deps.pods, request, "pod does not exist")
        container = request.match_info["container"]
        identity = await self._running(pod, request, f'container not found ("{container}")')
        argv = request.query.getall("command", [])
        async with self._deps.commands.place(group=pod.namespace):  # for a second at most: then it has begun
            try:
                url = await self._deps.runtime.exec_url(
                    identity, argv, tty=options.tty, stdin=options.stdin, stdout=options.stdout, stderr=options.stderr
                )
            except NodewrightError as error:
                raise of_error(error) from error
            return await self._proxy(request, url)

    async def attach(self, request: web.Request) -> web.StreamResponse:
        options = stream_options(request)
        pod = find_pod(self._deps.pods, request, "pod does not exist")
        name = request.match_info["container"]
        missing = f"container {name} not found in pod {pod.name}_{pod.namespace}"
        identity = await self._running(pod, request, missing)
        spec = pod.container(name)
        if spec is None:
            raise Refused(500, missing)
        # The terminal is part of the process since its start, so the client cannot choose.
        tty = bool(spec[1].get("tty"))
        try:
            url = await self._deps.runtime.attach_url(
                identity,
                tty=tty,
                stdin=options.stdin,
                stdout=options.stdout,
                stderr=options.stderr and not tty,
            )
        except NodewrightError as error:
            raise of_error(error) from error
        return await self._proxy(request, url)

    async def port_forward(self, request: web.Request) -> web.StreamResponse:
        ports = _ports(request)
        pod = find_pod(self._deps.pods, request, "pod does not exist")
        uid = request.match_info.get("uid", "")
        if uid and uid != pod.uid and self._deps.translate_uid(uid) != pod.uid:
            raise Refused(404, "pod not found")
        try:
            sandbox = await self._sandbox(pod)
            if sandbox is None:
                raise Refused(500, f'pod not found ("{pod.name}_{pod.namespace}")')
            url = await self._deps.runtime.port_forward_url(sandbox.id, ports)
        except NodewrightError as error:
            raise of_error(error) from error
        return await self._proxy(request, url)

    async def run(self, request: web.Request) -> web.StreamResponse:
        pod = find_pod(self._deps.pods, request, "pod does not exist")
        identity = await self._running(pod, request, f'container not found ("{request.match_info["container"]}")')
        argv = request.query.get("cmd", "").split(" ")
        try:
            async with self._deps.commands.place(group=pod.namespace):
                result = await self._deps.runtime.exec_sync(identity, argv, 0, much_output=True)
        except NodewrightError as error:
            raise of_error(error) from error
        if result.exit_code != 0:
            raise Refused(500, f"command '{' '.join(argv)}' exited with {result.exit_code}: {_shown(result.stderr)}")
        return web.Response(body=result.stdout + result.stderr, content_type="application/json")

    async def _running(self, pod: Pod, request: web.Request, missing: str) -> str:
        """Id of the running container that the path names, according to the runtime. Raises Refused."""
        uid = request.match_info.get("uid", "")
        if uid and uid != pod.uid and self._deps.translate_uid(uid) != pod.uid:
            raise Refused(500, missing)
        try:
            containers = await self._deps.runtime.list_containers(pod.uid)
        except NodewrightError as error:
            raise of_error(error) from error
        name = request.match_info["container"]
        running = [entry for entry in containers if entry.name == name and entry.state is RunState.RUNNING]
        if not running:
            raise Refused(500, missing)
        return max(running, key=lambda entry: entry.created_at).id

    async def _sandbox(self, pod: Pod) -> SandboxState | None:
        ready = [entry for entry in await self._deps.runtime.list_sandboxes(pod.uid) if entry.ready]
        return max(ready, key=lambda entry: entry.created_at, default=None)

    async def _proxy(self, request: web.Request, url: str) -> web.StreamResponse:
        protocols = authz.without_token(request.headers.get("Sec-WebSocket-Protocol", ""))
        idle = self._deps.settings.streaming_idle_timeout
        try:
            return await self._deps.edges.upgrades.proxy_upgrade(request, url, idle_timeout=idle, protocols=protocols)
        except UpgradeFailed as error:
            raise Refused(error.status, error.body.decode(errors="replace")) from error


def _ports(request: web.Request) -> list[int]:
    """The ports of a WebSocket request (SPDY names them per stream). Raises Refused (400)."""
    if request.headers.get("Upgrade", "").lower() != "websocket":
        return []
    given = request.query.getall("port", [])
    if not given:
        raise Refused(400, 'query parameter "port" is required')
    ports = []
    for text in given:
        if not text:
            raise Refused(400, 'query parameter "port" cannot be empty')
        for part in text.split(","):
            if not (is_number(part) and int(part) <= 65535):
                raise Refused(400, f'unable to parse "{text}" as a port')
            if int(part) < 1:
                raise Refused(400, f'port "{text}" must be > 0')
            ports.append(int(part))
    return ports


def _shown(output: bytes) -> str:
    return output[-2000:].decode(errors="replace")
