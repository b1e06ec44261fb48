"""Routes, filters and listeners: the table of what is served, and to whom."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from agent.server.model import TlsFiles
from agent.server.work import local
from agent.server.work.answers import Refused, text
from agent.server.work.auth import Auth
from agent.server.work.deps import ServerDeps
from agent.server.work.logs import ContainerLogs, SystemLogs, disabled_logs
from agent.server.work.metrics import Figures
from agent.server.work.pods import Health, Pods, debugging_disabled, no_pprof
from agent.server.work.requests import RequestMetrics
from agent.server.work.streams import Streams
from agent.server.work.zpages import ZPages
from nodelib.clock import Clock, SystemClock
from nodelib.errors import Invalid, NodewrightError

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_STREAMS = ("/exec/", "/attach/", "/portForward/", "/containerLogs/")
_DEBUGGING = ("/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/logs/")
_POD = "/{namespace}/{pod}"
_HEAD_LIMIT = 1 << 20  # bytes; the command of an exec is part of its request line
_RETRY_AFTER = "60"  # seconds that a runtime keeps an unused streaming token
_STOP_LIMIT = 2.0  # seconds for requests in hand when the agent stops


class KubeletServer:
    """The listeners of one agent. End it with close()."""

    def __init__(self, deps: ServerDeps) -> None:
        self._deps = deps
        self.addresses: dict[str, tuple[str, int]] = {}
        self._runners: list[web.AppRunner] = []

    async def close(self) -> None:
        """Stop listening, end what is in hand."""
        for runner in reversed(self._runners):
            await runner.cleanup()
        self._runners.clear()
        self._deps.edges.logs.close()

    async def _listen(
        self, name: str, app: web.Application, address: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        app.on_response_prepare.append(_no_signature)
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=90,
            shutdown_timeout=_STOP_LIMIT,
            max_line_size=_HEAD_LIMIT,
            max_field_size=_HEAD_LIMIT,
        )
        await runner.setup()
        self._runners.append(runner)
        site = web.SockSite(runner, _socket(name, address, port), ssl_context=tls, backlog=512)
        await site.start()
        self.addresses[name] = runner.addresses[0][:2]
        log.info("%s server listens on %s port %d", name, *self.addresses[name])

    async def _listen_locally(self, path: str) -> None:
        app = web.Application(middlewares=[_answer_errors])
        _add_explained(app, self._deps)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_LIMIT)
        await runner.setup()
        self._runners.append(runner)
        await local.listen(runner, path)

    async def _start(self, clock: Clock) -> None:
        deps, settings = self._deps, self._deps.settings
        metrics = RequestMetrics(deps.registry)
        if settings.enabled and settings.port:
            files = await asyncio.to_thread(_tls_files, deps)
            tls = await asyncio.to_thread(deps.edges.tls.context, files)
            auth = Auth(settings.auth, deps.node.name, deps.client, deps.edges.tls, clock)
            streams: set[asyncio.Task[object]] = set()
            filters = [metrics.filter("readwrite"), _answer_errors, _auth_filter(auth), _listed(streams)]
            app = web.Application(middlewares=filters)
            app.on_shutdown.append(lambda _: _cancel(streams))
            _add_open(app, deps, clock)
            _add_restricted(app, deps, clock)
            await self._listen("kubelet", app, settings.address, settings.port, tls)
        if settings.read_only_port:
            app = web.Application(middlewares=[metrics.filter("readonly"), _answer_errors])
            _add_open(app, deps, clock)
            for path in _DEBUGGING:
                app.router.add_route("*", path + "{rest:.*}", debugging_disabled)
            await self._listen("read-only", app, settings.address, settings.read_only_port)
        if settings.local_socket:
            await self._listen_locally(settings.local_socket)
        if settings.healthz_port:
            app = web.Application(middlewares=[_answer_errors])
            _add_health(app, deps)
            await self._listen("healthz", app, settings.healthz_address, settings.healthz_port)


async def start(deps: ServerDeps, clock: Clock | None = None) -> KubeletServer:
    """Listen on every configured port. Raises Invalid (certificates, configuration, a taken port)."""
    server = KubeletServer(deps)
    try:
        await server._start(clock or SystemClock())
    except BaseException:
        await server.close()
        raise
    return server


def _tls_files(deps: ServerDeps) -> TlsFiles:
    settings, node = deps.settings, deps.node
    cert, key = settings.tls_cert_file, settings.tls_key_file
    if bool(cert) != bool(key):
        raise Invalid(
            "only one of certificate and key is set",
            obj=cert or key,
            step="set up the kubelet server",
            action="Set both tlsCertFile and tlsPrivateKeyFile, or neither for a self-signed pair.",
        )
    if not cert:
        cert, key = deps.edges.tls.self_signed(node.cert_dir, node.names or (node.name,), node.addresses)
    return TlsFiles(
        cert,
        key,
        settings.auth.client_ca_file,
        settings.tls_min_version,
        settings.tls_cipher_suites,
        "" if settings.tls_cert_file else node.serving_pair,
    )


def _socket(name: str, address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # Port -1: any free one, for tests.
        listener.bind((address, max(port, 0)))
    except OSError as error:
        listener.close()
        raise Invalid(
            f"cannot listen on {address} port {port}: {error.strerror}",
            obj=f"{name} server",
            step="listen",
            action="Is another kubelet running here? `ss -ltnp` shows who holds the port.",
        ) from error
    return listener


def _add_open(app: web.Application, deps: ServerDeps, clock: Clock) -> None:
    """What upstream also serves on the read-only port (InstallAuthNotRequiredHandlers)."""
    _add_health(app, deps)
    pods, figures = Pods(deps, clock), Figures(deps)
    _get(app, "/pods", pods.list)
    _get(app, "/pods/", pods.list)
    _get(app, "/metrics", figures.metrics)
    _get(app, "/metrics/resource", figures.resource)
    _get(app, "/metrics/cadvisor", figures.cadvisor)
    _get(app, "/metrics/probes", figures.probes)
    _get(app, "/stats/summary", figures.summary)
    app.router.add_post("/stats/summary", figures.summary)


def _add_health(app: web.Application, deps: ServerDeps) -> None:
    health = Health(deps)
    app.router.add_get("/healthz", health.all)
    app.router.add_get("/healthz/ping", health.ping)
    app.router.add_get("/healthz/log", health.ping)
    app.router.add_get("/healthz/syncloop", health.syncloop)
    app.router.add_get("/healthz/lease", health.lease)


def _add_explained(app: web.Application, deps: ServerDeps) -> None:
    if deps.explains is not None:
        local.add_why(app, deps.explains)
    if deps.images is not None:
        local.add_images(app, deps.images)


def _add_restricted(app: web.Application, deps: ServerDeps, clock: Clock) -> None:
    """The rest (InstallAuthRequiredHandlers), unless debugging handlers are off."""
    settings = deps.settings
    if not settings.debugging_handlers:
        off = (
            "/run/",
            "/exec/",
            "/attach/",
            "/portForward/",
            "/containerLogs/",
            "/runningpods/",
            "/debug/pprof/",
            "/logs/",
        )
        for path in off:
            app.router.add_route("*", path + "{rest:.*}", debugging_disabled)
        return
    _add_explained(app, deps)
    streams, pods, zpages = Streams(deps), Pods(deps, clock), ZPages(deps, clock)
    for root, handler in (("/exec", streams.exec), ("/attach", streams.attach)):
        for path in (f"{root}{_POD}/{{container}}", f"{root}{_POD}/{{uid}}/{{container}}"):
            app.router.add_get(path, handler, allow_head=False)
            app.router.add_post(path, handler)
    for path in (f"/portForward{_POD}", f"/portForward{_POD}/{{uid}}"):
        app.router.add_get(path, streams.port_forward, allow_head=False)
        app.router.add_post(path, streams.port_forward)
    for path in (f"/run{_POD}/{{container}}", f"/run{_POD}/{{uid}}/{{container}}"):
        app.router.add_post(path, streams.run)
    _get(app, f"/containerLogs{_POD}/{{container}}", ContainerLogs(deps, clock).get)
    _get(app, "/configz", pods.configz)
    _get(app, "/statusz", zpages.statusz)
    _get(app, "/flagz", zpages.flagz)
    _get(app, "/runningpods/", pods.running)
    app.router.add_post(f"/checkpoint{_POD}/{{container}}", pods.checkpoint)
    _get(app, "/debug/pprof/{name:.*}", no_pprof)
    system_logs = SystemLogs(deps.node.system_log_dir).get if settings.system_log_handler else disabled_logs
    _get(app, "/logs/", system_logs)
    _get(app, "/logs/{path:.*}", system_logs)


def _get(app: web.Application, path: str, handler: Handler) -> None:
    """GET only; upstream answers other methods on these with 405."""
    app.router.add_get(path, handler, allow_head=False)


@web.middleware
async def _answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
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
        log.exception("%s %s failed: this is a defect", request.method, request.path)
        return text(500, "internal error: the log of this kubelet says more\n")


async def _no_signature(request: web.Request, response: web.StreamResponse) -> None:
    # Upstream's server does not name itself either.
    response.headers.pop("Server", None)


def _listed(streams: set[asyncio.Task[object]]) -> Middleware:
    """Keeps the requests that may last for hours, so that a stop need not wait for them."""

    @web.middleware
    async def keep(request: web.Request, handler: Handler) -> web.StreamResponse:
        task = asyncio.current_task()
        if task is None or not request.path.startswith(_STREAMS):
            return await handler(request)
        streams.add(task)
        try:
            return await handler(request)
        finally:
            streams.discard(task)

    return keep


async def _cancel(streams: set[asyncio.Task[object]]) -> None:
    for task in tuple(streams):
        task.cancel()


def _auth_filter(auth: Auth) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        # The router and the reviewer must mean the same path: no client of ours has use for dot segments.
        if any(segment in (".", "..") for segment in request.path.split("/")):
            return text(400, "paths with dot segments are not served\n")
        user = await auth.user(request)
        if user is None:
            return text(401, "Unauthorized")
        refusal = await auth.refusal(user, request.method, request.path)
        return await handler(request) if refusal is None else text(*refusal)

    return check
