"""The life of the agent's process: read the settings, build the parts, run their tasks until a signal.

The parts are made in agent/build/. When the agent stops, all pods run on.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from agent.build.agent import build_core
from agent.build.core import Core
from agent.build.standalone import adapted
from agent.config.effective import effective_text
from agent.config.parse import parse
from agent.node.edge.lock_file import LockFile
from agent.node.model import NodePlace
from agent.settings import ProcessSettings, Settings
from nodelib.clock import SystemClock
from nodelib.daemons import log as logging_setup
from nodelib.daemons import memory
from nodelib.daemons.sdnotify import notify_systemd
from nodelib.errors import NodewrightError
from nodelib.event_loop import Loop
from nodelib.tasks import Supervisor

log = logging.getLogger(__name__)

LiveSandboxes = Callable[[], Awaitable[frozenset[str] | None]]
OnNetworkCall = Callable[[str, str, float, str], None]
SpanOf = Callable[[str], str]
OnLimited = Callable[[Mapping[str, str], int, int], None]


class PodNetwork(Protocol):
    """A pod network in the agent's process (the CNI server)."""

    def set_nodes(self, nodes: list[NodePlace]) -> None:
        """Replace what is known of the cluster's Nodes."""
        ...

    async def run(self) -> None:
        """Serve until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Extra:
    """What another program adds to the agent.

    `network` makes the pod network. It gets a function that lists the living sandboxes, and one that takes a report of
    each CNI call: pod UID, command, seconds, and the error ("" if there was none), and one that gives the `traceparent`
    of the step that an ADD for a pod is part of ("": it is not traced), and one that is told which pods may begin few
    connections only, and why. `on_ready` is called once all parts have started.
    """

    network: Callable[[LiveSandboxes, OnNetworkCall, SpanOf, OnLimited], PodNetwork] | None = None
    on_ready: Callable[[Core], None] | None = None


async def run(settings: Settings, *, extra: Extra | None = None) -> None:
    """Run the whole agent until SIGTERM or SIGINT. Raises NodewrightError when it cannot start."""
    extra, settings = extra or Extra(), adapted(settings)
    for notice in settings.notices:
        log.warning("%s", notice)
    log.info("Effective KubeletConfiguration\n%s", effective_text(settings.effective))
    async with Supervisor("agent") as supervisor:
        supervisor.stop_on_signals()
        # First: the garbage collector is paused until then, and the rest may wait for hours (a lock, an approval).
        supervisor.spawn("memory", lambda: memory.keep_trimmed(SystemClock()))
        if not await supervisor.unless_stopped(_lock(settings.process, supervisor)):
            return
        core = await supervisor.unless_stopped(build_core(settings, watch_nodes=extra.network is not None))
        if core is None:  # stopped while a bootstrap was waiting for its approval
            return
        supervisor.on_stop("edges", core.close)
        if extra.network is not None:
            network = extra.network(
                core.live_sandboxes, core.on_network_call, core.network_span, core.limited_connections.update
            )
            nodes = core.base.nodes
            nodes.follow(lambda: network.set_nodes(nodes.now))
            supervisor.spawn("pod-network", network.run)
        for name, work in core.tasks().items():
            supervisor.spawn(name, work)
        supervisor.on_stop("workers", core.stop_work)
        await core.start_server()
        if extra.on_ready is not None:
            extra.on_ready(core)
        notify_systemd(supervisor, core.health, core.base.clock)
        await supervisor.wait()
        log.info("stopping; pods run on")


async def _lock(settings: ProcessSettings, supervisor: Supervisor) -> bool:
    """Take the --lock-file, if there is one, once no other kubelet holds it; always True. Raises Permanent."""
    if not settings.lock_file:
        return True
    lock = LockFile(settings.lock_file)
    log.info("waiting for the lock on %s", settings.lock_file)
    await lock.acquire(SystemClock())
    supervisor.on_stop("lock-file", lock.close)

    async def stop_on_contention() -> None:
        await lock.wait_for_contention()
        log.warning("%s was opened by another process: stopping, as --exit-on-lock-contention says", settings.lock_file)
        supervisor.stopping.set()

    if settings.exit_on_lock_contention:
        supervisor.once("lock-file", stop_on_contention)
    return True


def main(argv: Sequence[str] | None = None, *, extra: Extra | None = None) -> int:
    """Run the agent. Exit status: 0 stopped on request, 1 failed, 2 a bad command line or configuration."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
    except NodewrightError as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    logging_setup.setup(settings.process.logging, "agent")
    memory.settle_allocator()
    memory.rest_collector()
    try:
        with asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(run(settings, extra=extra))
    except NodewrightError as error:
        log.critical("%s", error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
