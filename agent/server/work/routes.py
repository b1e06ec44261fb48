"""The table of what is served, in the groups of upstream's InstallAuthNotRequiredHandlers and
InstallAuthRequiredHandlers (pkg/kubelet/server/server.go).
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from agent.server.work.container_logs import ContainerLogs
from agent.server.work.debug_flags import verbosity
from agent.server.work.dependencies import ServerDeps
from agent.server.work.disabled import debugging_disabled, flags_disabled, no_pprof, system_logs_disabled
from agent.server.work.filters import Handler
from agent.server.work.health import Health
from agent.server.work.metrics import MetricsEndpoints
from agent.server.work.pods import Pods
from agent.server.work.streams import Streams
from agent.server.work.system_logs import SystemLogs
from agent.server.work.why import Disks, Evictions, Images, Why
from agent.server.work.zpages import ZPages
from nodelib.clock import Clock

DEBUGGING = ("/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods/", "/logs/")
_POD = "/{namespace}/{pod}"


def add_open(app: web.Application, deps: ServerDeps, clock: Clock) -> None:
    """What upstream also serves on the read-only port (InstallAuthNotRequiredHandlers)."""
    add_health(app, deps)
    pods, metrics = Pods(deps, clock), MetricsEndpoints(deps)
    _get(app, "/pods", pods.list)
    _get(app, "/pods/", pods.list)
    _get(app, "/metrics", metrics.metrics)
    _get(app, "/metrics/resource", metrics.resource)
    _get(app, "/metrics/cadvisor", metrics.cadvisor)
    _get(app, "/metrics/probes", metrics.probes)
    _get(app, "/stats/summary", metrics.summary)
    app.router.add_post("/stats/summary", metrics.summary)


def add_health(app: web.Application, deps: ServerDeps) -> None:
    """/healthz and its checks, which answer HEAD too."""
    health = Health(deps)
    app.router.add_get("/healthz", health.all)
    app.router.add_get("/healthz/ping", health.ping)
    app.router.add_get("/healthz/log", health.ping)
    app.router.add_get("/healthz/syncloop", health.syncloop)
    app.router.add_get("/healthz/lease", health.lease)


def add_why(app: web.Application, deps: ServerDeps) -> None:
    """/why, /images, /eviction and /disk, which upstream does not have."""
    if deps.explains is not None:
        why = Why(deps.explains)
        _get(app, "/why", why.all)
        _get(app, f"/why{_POD}", why.pod)
    if deps.images is not None:
        _get(app, "/images", Images(deps.images).report)
    if deps.eviction is not None:
        _get(app, "/eviction", Evictions(deps.eviction).report)
    if deps.stats is not None:
        _get(app, "/disk", Disks(deps.stats).report)


def add_configz(app: web.Application, deps: ServerDeps, clock: Clock) -> None:
    """/configz on its own, for root on this machine (`doctor --cis`)."""
    _get(app, "/configz", ZPages(deps, clock).configz)


def add_restricted(app: web.Application, deps: ServerDeps, clock: Clock) -> None:
    """The rest (InstallAuthRequiredHandlers), unless debugging handlers are off."""
    settings = deps.settings
    if not settings.debugging_handlers:
        add_debugging_disabled(app, (*DEBUGGING, "/debug/pprof/"))
        return
    add_why(app, deps)
    _add_streams(app, Streams(deps))
    pods, zpages = Pods(deps, clock), ZPages(deps, clock)
    _get(app, f"/containerLogs{_POD}/{{container}}", ContainerLogs(deps, clock).get)
    _get(app, "/configz", zpages.configz)
    if settings.statusz:
        _get(app, "/statusz", zpages.statusz)
    if settings.flagz:
        _get(app, "/flagz", zpages.flagz)
    _get(app, "/runningpods", pods.running)  # as clients of the API server's proxy ask for it
    _get(app, "/runningpods/", pods.running)
    if settings.allocated_pods:
        _get(app, "/allocatedPods", pods.allocated)
        _get(app, f"/allocatedPods{_POD}", pods.one_allocated)
        _get(app, f"/allocatedPods{_POD}/{{uid}}", pods.one_allocated)
    if settings.checkpoints:
        app.router.add_post(f"/checkpoint{_POD}/{{container}}", pods.checkpoint)
    _get(app, "/debug/pprof/{name:.*}", no_pprof)
    app.router.add_route("*", "/debug/flags/v", verbosity if settings.debug_flags_handler else flags_disabled)
    system_logs = SystemLogs(deps).get if settings.system_log_handler else system_logs_disabled
    _get(app, "/logs", _with_slash)
    _get(app, "/logs/", system_logs)
    _get(app, "/logs/{path:.*}", system_logs)


def add_debugging_disabled(app: web.Application, prefixes: Iterable[str]) -> None:
    """Answer 405 to everything below these paths."""
    for prefix in prefixes:
        app.router.add_route("*", prefix + "{rest:.*}", debugging_disabled)


def _add_streams(app: web.Application, streams: Streams) -> None:
    for root, handler in (("/exec", streams.exec), ("/attach", streams.attach)):
        for path in (f"{root}{_POD}/{{container}}", f"{root}{_POD}/{{uid}}/{{container}}"):
            _get(app, path, handler)
            app.router.add_post(path, handler)
    for path in (f"/portForward{_POD}", f"/portForward{_POD}/{{uid}}"):
        _get(app, path, streams.port_forward)
        app.router.add_post(path, streams.port_forward)
    for path in (f"/run{_POD}/{{container}}", f"/run{_POD}/{{uid}}/{{container}}"):
        app.router.add_post(path, streams.run)


async def _with_slash(request: web.Request) -> web.StreamResponse:
    """The page's links are relative to a folder. As Go's ServeMux answers."""
    raise web.HTTPMovedPermanently(request.rel_url.with_path(f"{request.path}/", keep_query=True))


def _get(app: web.Application, path: str, handler: Handler) -> None:
    """GET only: upstream answers other methods on these with 405."""
    app.router.add_get(path, handler, allow_head=False)
