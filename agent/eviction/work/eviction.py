"""Measures the node, sets its pressure conditions, and evicts one pod at a time (pkg/kubelet/eviction managerImpl).

A round costs a few reads: what pods use is measured only when a threshold is met, or for pods with limits of ephemeral
storage. When something is nearly used up there is a round every second, since memory can run out within less than the
ordinary ten seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from agent.common.metrics import Metrics
from agent.common.model.eviction import Eviction
from agent.common.model.pods import Pod
from agent.common.plan import demand
from agent.common.ports import Events
from agent.common.work.observable import Observable
from agent.eviction.model import (
    Candidate,
    Evicted,
    EvictionPolicy,
    EvictionReport,
    EvictionState,
    Observations,
    Round,
    StorageLimits,
    Threshold,
)
from agent.eviction.plan import local_storage, messages, ranking, signals, thresholds
from agent.pods.work.registry import PodRegistry
from agent.stats.model import NodeStats, PodStats
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.threads import in_thread_if

log = logging.getLogger(__name__)

_INTERVAL = 10.0  # seconds; upstream's evictionMonitoringPeriod
_CLOSE_INTERVAL = 1.0
_CLEANUP_LIMIT = 30.0  # upstream's podCleanupTimeout
_REMEMBERED = 20  # evictions that a report shows
_PATIENCE = 2.0  # seconds that a round waits for pods with limits of storage to be measured
_LARGE = 1000  # volumes and containers of several pods that take more than a moment

Found = TypeVar("Found")


class Usage(Protocol):
    """stats/work.py StatsProvider."""

    async def node(self) -> NodeStats: ...

    async def usage(self, uids: Collection[str], *, storage: bool = True) -> Mapping[str, PodStats]: ...


class Reclaimer(Protocol):
    """What the node can free before it evicts a pod (eviction/work/reclaim.py). Raises NodewrightError."""

    async def remove_dead_containers(self) -> None: ...

    async def remove_unused_images(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EvictionDeps:
    """What the evictor works through. `node_ref`: the Node, for events; `pressures`: the conditions that hold now."""

    usage: Usage
    pods: PodRegistry
    reclaim: Reclaimer
    events: Events
    pressures: Observable[tuple[str, ...]]
    metrics: Metrics
    clock: Clock
    node_ref: Callable[[], Json]


class Evictor:
    """The eviction manager."""

    def __init__(self, policy: EvictionPolicy, parts: EvictionDeps) -> None:
        self._policy, self._parts = policy, parts
        self._state = EvictionState()
        self._is_close = False
        self._limits_checked_at = self._failed_at = float("-inf")
        self._measuring: asyncio.Task[Mapping[str, PodStats]] | None = None
        self._report = EvictionReport()
        self._limits: dict[str, StorageLimits] = {}  # of all active pods, by UID
        self._evicted: deque[Evicted] = deque(maxlen=_REMEMBERED)

    async def run(self) -> None:
        """Until cancelled."""
        try:
            await self._run()
        finally:
            if self._measuring is not None:
                self._measuring.cancel()

    def report(self) -> EvictionReport:
        """What the last round saw; nothing is measured for it."""
        return replace(self._report, evicted=tuple(self._evicted))

    async def _run(self) -> None:
        while True:
            evicted: list[str] = []
            try:
                evicted = await self.synchronize()
            except NodewrightError as error:
                log.warning("the node cannot be measured now: %s", error)
            if evicted:
                await self._parts.pods.until_over(evicted, self._parts.clock, _CLEANUP_LIMIT)
            else:
                await self._parts.clock.sleep(_CLOSE_INTERVAL if self._is_close else _INTERVAL)

    async def synchronize(self) -> list[str]:
        """One round; the UIDs of the pods that it evicts."""
        measured_at = self._parts.clock.monotonic()
        node = await self._parts.usage.node()
        seen = signals.observe(node)
        found = thresholds.next_round(self._policy, self._state, seen, self._parts.clock.monotonic())
        self._state = found.state
        clock = self._parts.clock
        seen_levels = thresholds.levels(self._policy, self._state, seen, clock.now() - clock.monotonic())
        self._report = EvictionReport(clock.now(), seen_levels, found.conditions)
        self._is_close = bool(found.conditions) or thresholds.is_close(self._policy.thresholds, seen)
        for kind in set(found.conditions) - set(self._parts.pressures.now):
            log.warning("the node is under pressure: %s", kind)
        self._parts.pressures.set(found.conditions)
        image_fs = signals.has_image_fs(node)
        over = await self._over_their_limits(image_fs)
        now = self._parts.clock.monotonic()
        if over or not found.due or now - self._failed_at < _INTERVAL:
            return over
        evicted = await self._act(found, seen, image_fs, measured_at)
        self._failed_at = float("-inf") if evicted else now
        return evicted

    async def _over_their_limits(self, image_fs: bool) -> list[str]:
        limited = await self._limited()
        used = await self._limited_use(limited)
        limits = self._limits
        found = await _in_thread_if_large(
            [limited[uid] for uid in used if uid in limited],
            lambda pod: local_storage.violation(pod, limits[pod.uid], used[pod.uid], image_fs=image_fs),
        )
        broken = [one for one in found if one is not None]
        for one in broken:
            self._evict(one)
        return [one.pod.uid for one in broken]

    async def _limited(self) -> dict[str, Pod]:
        """The pods with such limits, by UID."""
        active = {pod.uid: pod for pod in self._parts.pods.active()}
        # A static pod may keep its UID when it changes.
        fresh = [pod for pod in active.values() if pod.uid not in self._limits or pod.source != "api"]
        read = zip(fresh, await _in_thread_if_large(fresh, local_storage.limits_of), strict=True)
        kept = {uid: limits for uid, limits in self._limits.items() if uid in active}
        self._limits = kept | {pod.uid: limits for pod, limits in read}
        return {uid: pod for uid, pod in active.items() if self._limits[uid] and not demand.is_critical(pod)}

    async def _limited_use(self, limited: Collection[str]) -> Mapping[str, PodStats]:
        """What these pods use, measured at intervals; nothing while that is not due or goes on.

        A pod may have millions of files: no round waits for it, since the node may run out of memory meanwhile.
        """
        clock = self._parts.clock
        if self._measuring is None:
            due = clock.monotonic() - self._limits_checked_at >= _INTERVAL
            if not (self._policy.local_storage and limited and due):
                return {}
            self._limits_checked_at = clock.monotonic()
            self._measuring = asyncio.ensure_future(self._parts.usage.usage(list(limited)))
        measuring, over = self._measuring, asyncio.Event()
        measuring.add_done_callback(lambda _: over.set())
        await at_most(clock, _PATIENCE, over)
        if not measuring.done():
            return {}
        self._measuring = None
        return measuring.result()

    async def _act(self, found: Round, seen: Observations, image_fs: bool, measured_at: float) -> list[str]:
        target = found.due[0]
        resource = signals.RESOURCES[target.signal]
        text = f"Attempting to reclaim {resource}"
        self._parts.events.emit(self._parts.node_ref(), "Warning", "EvictionThresholdMet", text)
        if await self._reclaim(target, image_fs):
            log.info("%s is available again; no pod had to be evicted", resource)
            return []
        active = [pod for pod in self._parts.pods.active() if not demand.is_critical(pod)]
        # Memory may run out while a pod's millions of files are counted.
        on_disk = resource in (signals.STORAGE, signals.INODES)
        used = await self._parts.usage.usage([pod.uid for pod in active], storage=on_disk)
        candidates = [Candidate(pod, used.get(pod.uid)) for pod in active]
        for met in found.due if candidates else ():
            age = self._parts.clock.monotonic() - measured_at
            self._parts.metrics.eviction_stats_age.labels(met.signal).observe(age)
        for one in ranking.ranked(candidates, target.signal, image_fs=image_fs):
            chosen = messages.eviction(one, target, found.due, seen, self._policy)
            self._evict(chosen)
            return [one.pod.uid]
        log.warning("%s is low and no pod can be evicted (critical pods are never evicted)", resource)
        return []

    async def _reclaim(self, target: Threshold, image_fs: bool) -> bool:
        """Free what the node can without evicting; True if that was enough."""
        kinds = ranking.reclaimable(target.signal, image_fs=image_fs)
        work = {
            "containers": self._parts.reclaim.remove_dead_containers,
            "images": self._parts.reclaim.remove_unused_images,
        }
        for kind in kinds:
            try:
                await work[kind]()
            except NodewrightError as error:
                log.warning("unused %s are not all removed: %s", kind, error)
        if not kinds:
            return False
        seen = signals.observe(await self._parts.usage.node())
        return not thresholds.met(self._policy.thresholds, seen, with_reclaim=True)

    def _evict(self, one: Eviction) -> None:
        self._parts.events.emit(one.pod.raw, "Warning", one.reason, one.message, annotations=one.annotations)
        self._parts.pods.evict(one)
        self._evicted.append(Evicted(one.pod.namespace, one.pod.name, self._parts.clock.now(), one.message))
        self._parts.metrics.evictions.labels(one.signal).inc()


async def _in_thread_if_large(pods: Sequence[Pod], work: Callable[[Pod], Found]) -> list[Found]:
    """`work` for each of them: one of 25,000 volumes takes a tenth of a second, and a node may have a hundred such."""
    large = sum(map(local_storage.size, pods)) > _LARGE
    return await in_thread_if(large, lambda: [work(pod) for pod in pods])
