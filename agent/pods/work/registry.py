"""Which pods this node has, and how their workers are woken. Upstream: pkg/kubelet/pod (Manager) and podWorkers' state.

Made before every other part, so that each of them can ask it and wake a pod; pod_workers.py puts the workers in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from agent.common.model.eviction import Eviction
from agent.common.model.pods import ContainerState, Json, ObservedPod, Pod, RunState
from agent.pods.plan.status import TERMINAL
from agent.pods.work.memory import PodMemory
from agent.pods.work.pod_worker import PodWorker


class PodRegistry:
    """agent.common.ports.PodView. `workers` by pod UID; `synced` once every source has listed its pods."""

    def __init__(self) -> None:
        self.workers: dict[str, PodWorker] = {}
        self.synced = asyncio.Event()
        self._on_removed: list[Callable[[str], None]] = []

    # --- the inbox

    def wake(self, uid: str) -> None:
        """Something that the pod's plan depends on has changed: a probe's answer, a device's health, its mirror pod."""
        worker = self.workers.get(uid)
        if worker is not None:
            worker.wake()

    def refresh(self, uid: str) -> None:
        """What the pod's volumes show has changed: write it, without its worker waiting for that."""
        worker = self.workers.get(uid)
        if worker is not None:
            worker.refresh_volumes()

    def retry_blocked(self) -> None:
        """Something that pods may have waited for has come (a driver): whatever failed is tried again now."""
        for worker in self.workers.values():
            worker.retry_blocked()

    def evict(self, eviction: Eviction) -> None:
        """Fail a pod for a reason of the node's own."""
        worker = self.workers.get(eviction.pod.uid)
        if worker is not None:
            worker.evict(eviction)

    def drop_records(self) -> int:
        """Remove the containers of pods that have ended; how many pods still have some."""
        holding = [
            worker
            for worker in self.workers.values()
            if worker.memory.released and (worker.memory.seen.containers or worker.memory.seen.sandboxes)
        ]
        for worker in holding:
            worker.drop_records()
        return len(holding)

    def follow_removals(self, on_removed: Callable[[str], None]) -> None:
        """Call `on_removed(uid)` once nothing of a pod is left."""
        self._on_removed.append(on_removed)

    def removed(self, uid: str) -> None:
        """Nothing of this pod is left."""
        self.workers.pop(uid, None)
        for on_removed in self._on_removed:
            on_removed(uid)

    # --- the view

    def pods(self) -> list[Pod]:
        """Desired pods, terminating ones included."""
        return [memory.pod for memory in self.memories() if memory.pod.source != "runtime"]

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name; of two, the one that is not being deleted."""
        found = [pod for pod in self.pods() if (pod.namespace, pod.name) == (namespace, name)]
        return min(found, key=lambda pod: pod.is_deleted, default=None)

    def status(self, uid: str) -> Json:
        worker = self.workers.get(uid)
        return worker.memory.status if worker else {}

    def observed(self, uid: str) -> ObservedPod:
        """The newest view that the pod's worker has of the runtime."""
        worker = self.workers.get(uid)
        return worker.memory.seen if worker else ObservedPod(uid)

    def memory(self, uid: str) -> PodMemory | None:
        """All that the pod's worker knows, to be read only."""
        worker = self.workers.get(uid)
        return worker.memory if worker else None

    def memories(self) -> Iterable[PodMemory]:
        """Of all pods, terminating ones included; to be read only."""
        # Metrics are collected in a thread while pods come and go here: the copy is made in one step.
        return [worker.memory for worker in tuple(self.workers.values())]

    def active(self) -> list[Pod]:
        """Pods that hold what they asked for. A pod whose object is gone does not, though its containers may linger:
        the scheduler has already given its room away (upstream: GetActivePods)."""
        return [
            memory.pod
            for memory in self.memories()
            if not memory.gone
            and memory.status.get("phase", memory.pod.status.get("phase")) not in TERMINAL
            and (memory.termination is None or not memory.termination.fails)
        ]

    def running(self) -> Iterator[ContainerState]:
        """All containers that run on the node."""
        for memory in self.memories():
            yield from (one for one in memory.seen.containers if one.state is RunState.RUNNING)

    def is_over(self, uid: str) -> bool:
        """Nothing of the pod runs or is held any more."""
        worker = self.workers.get(uid)
        return worker is None or worker.memory.released
