"""Graceful node shutdown: pods are stopped by priority before the machine shuts down (pkg/kubelet/nodeshutdown).

logind announces a shutdown and waits for everybody who holds an inhibitor lock, up to a limit of its own; that is
raised when it is too short. A shutdown that is cancelled makes the node Ready again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from agent.common.metrics import Metrics
from agent.common.ports import CheckpointStore, Events
from agent.common.work.observable import Observable
from agent.node.plan import shutdown as plan
from agent.node.plan.shutdown import Group, Period
from agent.pods.work.registry import PodRegistry
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json, decode
from nodelib.kube.times import format_rfc3339, parse_rfc3339

log = logging.getLogger(__name__)

_STATE = "graceful_node_shutdown_state"  # upstream's name and form
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_DELAY_POLLS, _DELAY_PAUSE = 10, 0.3


class Logind(Protocol):
    """node/edge/logind.py. Every call raises Temporary when it cannot be reached or refuses."""

    async def connect(self) -> None: ...

    async def longest_delay(self) -> float: ...

    async def allow_delay(self, seconds: float) -> None: ...

    async def is_preparing(self) -> bool: ...

    async def inhibit(self) -> None: ...

    def release(self) -> None: ...

    def shutdowns(self) -> AsyncGenerator[bool, None]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class NodeShutdownDeps:
    """What the keeper works through. `shutting_down` is set for admission and for the node's status."""

    logind: Logind
    pods: PodRegistry
    checkpoints: CheckpointStore
    events: Events
    metrics: Metrics
    clock: Clock
    shutting_down: Observable[bool]
    node_ref: Callable[[], Json]


class NodeShutdownManager:
    """Holds the inhibitor lock and stops the pods."""

    def __init__(self, periods: tuple[Period, ...], parts: NodeShutdownDeps) -> None:
        self._periods, self._parts = periods, parts

    async def run(self) -> None:
        """Until cancelled: hold the lock, act on a shutdown, connect again to a logind that has restarted."""
        await self._publish_last()
        pause, logged = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), ""
        while True:
            try:
                await self._watch(pause)
                log.warning("logind closed the connection; connecting again")
            except NodewrightError as error:
                if str(error) != logged:
                    logged = str(error)
                    log.warning("a shutdown of this machine would not wait for its pods: %s", error)
            finally:
                await self._parts.logind.close()
            await self._parts.clock.sleep(pause.next())

    async def _watch(self, pause: Backoff) -> None:
        logind = self._parts.logind
        await logind.connect()
        await self._allow_delay()
        if await logind.is_preparing():
            # The agent was restarted in the middle of a shutdown: logind gives out no lock any more.
            await self._shut_down()
        else:
            await logind.inhibit()
            self._parts.shutting_down.set(False)
            log.info("a shutdown of this machine waits up to %d s for its pods", plan.total(self._periods))
        pause.reset()
        async with aclosing(logind.shutdowns()) as announced:
            async for preparing in announced:
                if preparing:
                    await self._shut_down()
                else:
                    self._emit("Shutdown manager detected shutdown cancellation")
                    self._parts.shutting_down.set(False)
                    await logind.inhibit()

    async def _allow_delay(self) -> None:
        wanted, logind = plan.total(self._periods), self._parts.logind
        if await logind.longest_delay() >= wanted:
            return
        await logind.allow_delay(wanted)
        for _ in range(_DELAY_POLLS):  # logind signals no change of this property
            if await logind.longest_delay() >= wanted:
                return
            await self._parts.clock.sleep(_DELAY_PAUSE)
        raise Temporary(
            f"it still waits for {await logind.longest_delay():g} s at most; {wanted} s are needed",
            obj="systemd-logind",
            step="raise InhibitDelayMaxSec",
            action="Set InhibitDelayMaxSec in /etc/systemd/logind.conf by hand and reload systemd-logind.",
        )

    async def _shut_down(self) -> None:
        self._emit("Shutdown manager detected shutdown event")
        self._parts.shutting_down.set(True)
        began = self._parts.clock.now()
        await self._record(began, None)
        try:
            for group in plan.groups(self._periods, self._parts.pods.active()):
                await self._stop(group)
        finally:
            self._parts.logind.release()
        await self._record(began, self._parts.clock.now())
        log.info("the pods are stopped; the shutdown may proceed")

    async def _stop(self, group: Group) -> None:
        for pod in group.pods:
            self._parts.pods.evict(plan.termination(pod, group.seconds))
        names = {pod.uid: pod.full_name for pod in group.pods}
        left = await self._parts.pods.until_over(names.keys(), self._parts.clock, group.seconds)
        if left:
            still = ", ".join(name for uid, name in names.items() if uid in left)
            log.warning("after %d s these pods are still being stopped: %s", group.seconds, still)

    async def _record(self, began: float, ended: float | None) -> None:
        self._measure(began, ended or 0.0)
        state = {"startTime": format_rfc3339(began), "endTime": format_rfc3339(ended) if ended else None}
        try:
            await self._parts.checkpoints.write(_STATE, json.dumps(state))
        except NodewrightError as error:
            log.warning("the times of this shutdown cannot be saved: %s", error)

    async def _publish_last(self) -> None:
        """Publish the times of the shutdown before this start as metrics."""
        try:
            state = decode(await self._parts.checkpoints.read(_STATE) or "{}")
            times = [parse_rfc3339(state[key]) if state.get(key) else 0.0 for key in ("startTime", "endTime")]
        except (NodewrightError, ValueError, AttributeError) as error:
            log.warning("the times of the last shutdown cannot be read: %s", error)
            return
        self._measure(*times)

    def _measure(self, began: float, ended: float) -> None:
        self._parts.metrics.graceful_shutdown_start_time.set(began)
        self._parts.metrics.graceful_shutdown_end_time.set(ended)

    def _emit(self, message: str) -> None:
        self._parts.events.emit(self._parts.node_ref(), "Normal", "NodeShutdown", message)
