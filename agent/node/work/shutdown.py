"""The machine goes: pods are stopped by priority before it does (pkg/kubelet/nodeshutdown).

logind asks everybody who holds an inhibitor lock and waits for them, up to its own limit, which is
raised when it is too short. A shutdown that is called off again makes the node Ready again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Protocol

from agent.common.metrics import Metrics
from agent.common.model.eviction import Eviction
from agent.common.model.pods import Pod
from agent.common.ports import CheckpointStore, Events
from agent.common.work.observable import Observable
from agent.node.plan import shutdown as plan
from agent.node.plan.shutdown import Group, Period
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339, parse_rfc3339

log = logging.getLogger(__name__)

_STATE = "graceful_node_shutdown_state"  # upstream's name and form
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_DELAY_POLLS, _DELAY_PAUSE = 10, 0.3
_POLL = 0.1


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


class Stoppable(Protocol):
    """pods/work/registry.py PodRegistry."""

    def active(self) -> list[Pod]: ...

    def evict(self, eviction: Eviction) -> None: ...

    def is_over(self, uid: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class ShutdownParts:
    """What the keeper works through. `going`: the node is shutting down, which admission and its status ask for."""

    logind: Logind
    pods: Stoppable
    checkpoints: CheckpointStore
    events: Events
    metrics: Metrics
    clock: Clock
    going: Observable[bool]
    node_ref: Callable[[], Json]


class ShutdownKeeper:
    """Holder of the inhibitor lock."""

    def __init__(self, periods: tuple[Period, ...], parts: ShutdownParts) -> None:
        self._periods, self._parts = periods, parts

    async def run(self) -> None:
        """Until cancelled: hold a lock, act on a shutdown, come back to a logind that was away."""
        await self._tell_last()
        pause, told = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), ""
        while True:
            try:
                await self._watch(pause)
                log.warning("logind ended the connection; it is asked again")
            except NodewrightError as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("a shutdown of this machine would not wait for its pods: %s", error)
            finally:
                await self._parts.logind.close()
            await self._parts.clock.sleep(pause.next())

    async def _watch(self, pause: Backoff) -> None:
        logind = self._parts.logind
        await logind.connect()
        await self._allow_delay()
        if await logind.is_preparing():
            # An agent that was started again in the middle of a shutdown: no lock can be had any more.
            await self._shut_down()
        else:
            await logind.inhibit()
            self._parts.going.set(False)
            log.info("a shutdown of this machine waits up to %d s for its pods", plan.total(self._periods))
        pause.reset()
        async with aclosing(logind.shutdowns()) as news:
            async for preparing in news:
                if preparing:
                    await self._shut_down()
                else:
                    self._tell("Shutdown manager detected shutdown cancellation")
                    self._parts.going.set(False)
                    await logind.inhibit()

    async def _allow_delay(self) -> None:
        wanted, logind = plan.total(self._periods), self._parts.logind
        if await logind.longest_delay() >= wanted:
            return
        await logind.allow_delay(wanted)
        for _ in range(_DELAY_POLLS):
            if await logind.longest_delay() >= wanted:
                return
            await self._parts.clock.sleep(_DELAY_PAUSE)
        raise Temporary(
            f"it still waits {await logind.longest_delay():g} s at most, and {wanted} s are wanted",
            obj="systemd-logind",
            step="raise InhibitDelayMaxSec",
            action="Set InhibitDelayMaxSec in /etc/systemd/logind.conf by hand and reload systemd-logind.",
        )

    async def _shut_down(self) -> None:
        self._tell("Shutdown manager detected shutdown event")
        self._parts.going.set(True)
        began = self._parts.clock.now()
        await self._note(began, None)
        try:
            for group in plan.groups(self._periods, self._parts.pods.active()):
                await self._stop(group)
        finally:
            self._parts.logind.release()
        await self._note(began, self._parts.clock.now())
        log.info("the pods are stopped; the machine may go")

    async def _stop(self, group: Group) -> None:
        for pod in group.pods:
            self._parts.pods.evict(plan.termination(pod, group.seconds))
        clock, names = self._parts.clock, {pod.uid: pod.full_name for pod in group.pods}
        end = clock.monotonic() + group.seconds
        while left := [name for uid, name in names.items() if not self._parts.pods.is_over(uid)]:
            if clock.monotonic() >= end:
                log.warning("after %d s these pods are not over: %s", group.seconds, ", ".join(left))
                return
            await clock.sleep(_POLL)

    async def _note(self, began: float, ended: float | None) -> None:
        self._measure(began, ended or 0.0)
        state = {"startTime": format_rfc3339(began), "endTime": format_rfc3339(ended) if ended else None}
        try:
            await self._parts.checkpoints.write(_STATE, json.dumps(state))
        except NodewrightError as error:
            log.warning("the times of this shutdown are not kept: %s", error)

    async def _tell_last(self) -> None:
        """Expose the times of the shutdown before this start."""
        try:
            state = json.loads(await self._parts.checkpoints.read(_STATE) or "{}")
            times = [parse_rfc3339(state[key]) if state.get(key) else 0.0 for key in ("startTime", "endTime")]
        except (NodewrightError, ValueError, AttributeError) as error:
            log.warning("the times of the last shutdown cannot be read: %s", error)
            return
        self._measure(*times)

    def _measure(self, began: float, ended: float) -> None:
        self._parts.metrics.graceful_shutdown_start_time.set(began)
        self._parts.metrics.graceful_shutdown_end_time.set(ended)

    def _tell(self, message: str) -> None:
        self._parts.events.emit(self._parts.node_ref(), "Normal", "NodeShutdown", message)
