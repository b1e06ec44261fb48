"""The kubelet's listeners: which application is served on which port, and to whom."""

from __future__ import annotations

import asyncio
import logging
import ssl

from aiohttp import web

from agent.server.model import TlsFiles
from agent.server.work import filters, routes
from agent.server.work.auth import Auth
from agent.server.work.dependencies import ServerDeps
from agent.server.work.request_metrics import RequestMetrics
from nodelib.clock import Clock, SystemClock
from nodelib.errors import Invalid

log = logging.getLogger(__name__)


class KubeletServer:
    """The listeners of one agent: name to address and port in `addresses`. Call close() at the end."""

    def __init__(self, deps: ServerDeps) -> None:
        self._deps = deps
        self.addresses: dict[str, tuple[str, int]] = {}

    async def close(self) -> None:
        """Stop listening and end the requests that are still running."""
        await self._deps.edges.listeners.close()
        self._deps.edges.logs.close()

    async def start(self, clock: Clock) -> None:
        """Open every configured listener. Raises Invalid (certificates, configuration, a taken port)."""
        deps, settings = self._deps, self._deps.settings
        metrics = RequestMetrics(deps.registry, clock)
        if settings.enabled and settings.port:
            await self._start_api(metrics, clock)
        if settings.read_only_port:
            app = web.Application(middlewares=[metrics.filter("readonly"), filters.answer_errors])
            routes.add_open(app, deps, clock)
            routes.add_debugging_disabled(app, routes.DEBUGGING)
            await self._listen("read-only", app, settings.address, settings.read_only_port)
        if settings.local_socket:
            app = web.Application(middlewares=[filters.answer_errors])
            app.on_response_prepare.append(filters.note_begun)
            routes.add_why(app, deps)
            routes.add_configz(app, deps, clock)
            await deps.edges.listeners.listen_unix(app, settings.local_socket)
        if settings.healthz_port:
            app = web.Application(middlewares=[filters.answer_errors])
            routes.add_health(app, deps)
            await self._listen("healthz", app, settings.healthz_address, settings.healthz_port)

    async def _start_api(self, metrics: RequestMetrics, clock: Clock) -> None:
        deps, settings = self._deps, self._deps.settings
        files = await asyncio.to_thread(_tls_files, deps)
        tls = await asyncio.to_thread(deps.edges.tls.context, files)
        auth = Auth(settings.auth, deps.node.name, deps.client, deps.edges.tls, clock)
        streams = filters.OpenStreams(settings.most_streams, settings.most_streams_of_namespace)
        app = web.Application(
            middlewares=[
                metrics.filter("readwrite"),
                filters.answer_errors,
                filters.authorize(auth),
                streams.filter(),
            ]
        )
        app.on_shutdown.append(streams.cancel)
        routes.add_open(app, deps, clock)
        routes.add_restricted(app, deps, clock)
        await self._listen("kubelet", app, settings.address, settings.port, tls)

    async def _listen(
        self, name: str, app: web.Application, address: str, port: int, tls: ssl.SSLContext | None = None
    ) -> None:
        app.on_response_prepare.extend((filters.note_begun, filters.remove_server_header))
        self.addresses[name] = await self._deps.edges.listeners.listen(name, app, address, port, tls)
        log.info("%s server listens on %s port %d", name, *self.addresses[name])


async def start(deps: ServerDeps, clock: Clock | None = None) -> KubeletServer:
    """Listen on every configured port. Raises Invalid (certificates, configuration, a taken port)."""
    server = KubeletServer(deps)
    try:
        await server.start(clock or SystemClock())
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
        settings.tls_curves,
    )
