"""Builds the driver out of its parts and serves."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence

from csi.capacity import Capacity
from csi.controller import Controller
from csi.edge.disk import Disk
from csi.identity import Identity
from csi.model import DRIVER
from csi.node import Node
from csi.operations import Operations
from csi.settings import Settings, load_settings
from nodelib.clock import SystemClock
from nodelib.daemons.program import run_daemon
from nodelib.daemons.sdnotify import notify_systemd
from nodelib.plugin_apis.csi import CSI
from nodelib.plugin_apis.registration import REGISTRATION
from nodelib.plugin_apis.server import serve
from nodelib.tasks import Supervisor

log = logging.getLogger(__name__)

_GRACE = 1.0  # seconds for calls that read; those that change something are the operations'


def main(argv: Sequence[str] | None = None) -> int:
    """Run the driver and return its exit status.

    0: it was asked to stop; 1: it failed; 2: the command line is wrong.
    """
    return run_daemon("csi", argv, load_settings, _work)


def _work(settings: Settings) -> int:
    asyncio.run(run(settings))
    return 0


async def run(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT. What is mounted stays mounted."""
    os.umask(0o077)
    disk, clock, operations = Disk(settings.root), SystemClock(), Operations()
    await disk.recover()
    async with Supervisor("csi") as supervisor:
        supervisor.stop_on_signals()
        supervisor.on_stop("operations", operations.close)
        capacity = Capacity(disk, settings.reserve)
        identity = Identity(settings.socket)
        controller = Controller(disk, capacity, operations, clock, settings.node)
        node = Node(disk, capacity, operations, clock, settings.node)
        services = {"Identity": identity.methods(), "Controller": controller.methods(), "Node": node.methods()}
        server = await serve(settings.socket, [CSI.handler(name, methods) for name, methods in services.items()])
        supervisor.on_stop("CSI server", lambda: server.stop(_GRACE))
        if settings.registry:
            handler = REGISTRATION.handler("Registration", identity.registration())
            registrar = await serve(f"{settings.registry}/{DRIVER}-reg.sock", [handler])
            supervisor.on_stop("registration", lambda: registrar.stop(None))
        notify_systemd(supervisor, lambda: "", clock)
        log.info("serving volumes of %s at %s", settings.root, settings.socket)
        await supervisor.wait()
