"""Sockets that serve an aiohttp application: TCP with or without TLS, and a unix socket for root."""

from __future__ import annotations

import logging
import os
import socket
import ssl

from aiohttp import web

from nodelib.connections.gate import Gate
from nodelib.connections.limits import OPEN, ConnectionLimits
from nodelib.connections.middlewares import innermost, outermost
from nodelib.daemons.http_server import bound
from nodelib.errors import Invalid

log = logging.getLogger(__name__)

_KEEP_ALIVE = 90  # seconds
_STOP_LIMIT = 2.0  # seconds that running requests get when the agent stops
_LINGER = 1.0  # seconds for the rest of a body that nobody reads
_BACKLOG = 512


class Listeners:
    """The open sockets of one server (agent.server.ports.Listeners)."""

    def __init__(self, limits: ConnectionLimits | None = None) -> None:
        self._limits = limits or ConnectionLimits()
        self._gates: list[Gate] = []
        self._runners: list[web.AppRunner] = []

    async def listen(
        self, name: str, app: web.Application, address: str, port: int, tls: ssl.SSLContext | None = None
    ) -> tuple[str, int]:
        limits = self._limits if tls is not None else OPEN
        app.middlewares.insert(0, outermost())
        app.middlewares.append(innermost())
        runner = await self._runner(
            web.AppRunner(
                app,
                access_log=None,
                handler_cancellation=True,
                keepalive_timeout=_KEEP_ALIVE,
                lingering_time=_LINGER,
                shutdown_timeout=_STOP_LIMIT,
                # The gate limits the head as a whole.
                max_line_size=limits.head,
                max_field_size=limits.head,
            )
        )
        assert runner.server is not None, "made by setup()"
        listener = _socket(name, address, port)
        gate = Gate(runner.server, tls, limits)
        gate.listen(listener, _BACKLOG)
        self._gates.append(gate)
        host, bound = listener.getsockname()[:2]
        return str(host), int(bound)

    async def listen_unix(self, app: web.Application, path: str) -> None:
        runner = await self._runner(web.AppRunner(app, access_log=None, shutdown_timeout=_STOP_LIMIT))
        # Bound under another name and then renamed, so that the socket never exists with a wider mode.
        draft = f"{path}.{os.getpid()}"
        try:
            os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
            await web.UnixSite(runner, draft).start()
            os.chmod(draft, 0o600)
            os.rename(draft, path)
        except OSError as error:
            log.warning("no local socket at %s: %s; `nodewright why` cannot ask this node", path, error.strerror)

    async def close(self) -> None:
        """The last one opened is closed first."""
        for gate in self._gates:
            await gate.close()
        self._gates.clear()
        for runner in reversed(self._runners):
            await runner.cleanup()
        self._runners.clear()

    async def _runner(self, runner: web.AppRunner) -> web.AppRunner:
        await runner.setup()
        self._runners.append(runner)
        return runner


def _socket(name: str, address: str, port: int) -> socket.socket:
    try:
        return bound(address, max(port, 0), dual=True)
    except OSError as error:
        raise Invalid(
            f"cannot listen on {address} port {port}: {error.strerror}",
            obj=f"{name} server",
            step="listen",
            action="Is another kubelet running here? `ss -ltnp` shows who holds the port.",
        ) from error
