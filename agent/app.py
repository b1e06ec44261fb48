"""The agent's composition root: builds every edge from Settings, wires the parts, owns the tasks.

Nothing is decided here. The order of the start matters in one place: no pod is planned before
the runtime has been looked at once, or running pods would be taken for new ones. The stop
leaves all pods running.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import uvloop

from agent.build.agent import build_core
from agent.build.core import Core
from agent.build.standalone import adapted
from agent.config.effective import effective_text
from agent.config.parse import parse
from agent.node.edge.lock_file import LockFile
from agent.node.model import NodePlace
from agent.settings import ProcessSettings, Settings
from nodelib import log as logging_setup
from nodelib import memory
from nodelib.clock import SystemClock
from nodelib.errors import NodewrightError
from nodelib.sdnotify import tell_systemd
from nodelib.tasks import Supervisor

log = logging.getLogger(__name__)

LiveSandboxes = Callable[[], Awaitable[frozenset[str] | None]]
NetworkTold = Callable[[str, str, float, str], None]


class PodNetwork(Protocol):
    """A pod network that lives in the agent's process (the CNI server)."""

    def set_nodes(self, nodes: list[NodePlace]) -> None:
        """All Nodes as they are now."""
        ...

    async def run(self) -> None:
        """Until cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Extra:
    """What a composition root above this one adds.

    `network` is built with a way to ask for living sandboxes, and one to tell what was done for a pod: UID, CNI
    command, seconds, and what failed ("" when nothing did).
    """

    network: Callable[[LiveSandboxes, NetworkTold], PodNetwork] | None = None
    on_ready: Callable[[Core], None] | None = None


async def run(settings: Settings, *, extra: Extra | None = None) -> None:
    """The whole agent, until SIGTERM or SIGINT. Raises NodewrightError for what it cannot start without."""
    extra, settings = extra or Extra(), adapted(settings)
    for notice in settings.notices:
        log.warning("%s", notice)
    log.info("Effective KubeletConfiguration\n%s", effective_text(settings.effective))
    async with Supervisor("agent") as supervisor:
        supervisor.stop_on_signals()
        # Before anything that may wait for hours (a lock, a bootstrap's approval): the collector rests until then.
        supervisor.spawn("memory", lambda: memory.keep_trimmed(SystemClock()))
        if not await supervisor.unless_stopped(_alone(settings.process, supervisor)):
            return
        core = await supervisor.unless_stopped(build_core(settings, wants_nodes=extra.network is not None))
        if core is None:  # a bootstrap may wait for its approval for hours
            return
        supervisor.on_stop("edges", core.close)
        if extra.network is not None:
            network = extra.network(core.live_sandboxes, core.network_told)
            core.follow_nodes(network.set_nodes)
            supervisor.spawn("pod-network", network.run)
        for name, work in core.tasks().items():
            supervisor.spawn(name, work)
        supervisor.on_stop("workers", core.stop_work)
        await core.start_server()
        if extra.on_ready is not None:
            extra.on_ready(core)
        tell_systemd(supervisor, core.health, core.base.clock)
        await supervisor.wait()
        log.info("stopping; pods run on")


async def _alone(wanted: ProcessSettings, supervisor: Supervisor) -> bool:
    """With --lock-file, once no other kubelet holds it. Raises Permanent."""
    if not wanted.lock_file:
        return True
    lock = LockFile(wanted.lock_file)
    log.info("waiting for the lock on %s", wanted.lock_file)
    await lock.acquire(SystemClock())
    supervisor.on_stop("lock-file", lock.close)

    async def make_room() -> None:
        await lock.wait_for_contention()
        log.warning("%s was opened by another process: stopping, as --exit-on-lock-contention says", wanted.lock_file)
        supervisor.stopping.set()

    if wanted.exit_on_lock_contention:
        supervisor.once("lock-file", make_room)
    return True


def main(argv: Sequence[str] | None = None, *, extra: Extra | None = None) -> int:
    """The command: exit status 0 after a stop that was asked for, 1 after a failure, 2 for a bad command line."""
    try:
        settings = parse(sys.argv[1:] if argv is None else argv)
    except NodewrightError as error:
        print(f"agent: {error}", file=sys.stderr)
        return 2
    logging_setup.setup(settings.process.verbosity, "agent")
    memory.settle_allocator()
    memory.rest_collector()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(settings, extra=extra))
    except NodewrightError as error:
        log.critical("%s", error)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
