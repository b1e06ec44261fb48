"""The pods of this node, and how to wake their workers. Upstream: pkg/kubelet/pod (Manager) and podWorkers' state.

It is made before all other parts, so that each of them can ask for pods and wake one; PodWorkers fills it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from agent.common.model.eviction import Eviction
from agent.common.model.pods import ContainerState, ObservedPod, Pod, RunState
from agent.common.work.observable import Signal, until_within
from agent.pods.plan.status import TERMINAL
from agent.pods.work.memory import PodMemory
from agent.pods.work.pod_worker import PodWorker
from nodelib.clock import Clock
from nodelib.json_values import Json


class PodRegistry:
    """The one view of the pods: finds them, wakes their workers, says when one is gone (agent.common.ports.PodView).

    `seen(uid)` is the runtime's view of any pod. `workers` by pod UID, added and removed by PodWorkers only;
    `unmanaged`: pods that run and have no worker, since their spec cannot be used, without that spec; changed by
    PodWorkers only. `synced` is set once every source has listed its pods. `cleaned_up` fires when a pod has released
    what it held, when the runtime's records of such a pod change, and when nothing of a pod is left.
    """

    def __init__(self, seen: Callable[[str], ObservedPod] = ObservedPod) -> None:
        self._seen = seen
        self._workers: dict[str, PodWorker] = {}
        self.workers: Mapping[str, PodWorker] = MappingProxyType(self._workers)
        self._may_be_active: dict[PodWorker, None] = {}
        self.unmanaged: dict[str, Pod] = {}
        self.synced = asyncio.Event()
        self.cleaned_up = Signal()
        self._on_removed: list[Callable[[str], None]] = []
        self._on_changed: list[Callable[[PodMemory], None]] = []

    # --- news for the workers

    def wake(self, uid: str) -> None:
        """Plan the pod afresh: an input has changed, such as a probe's result, a device's health or its mirror pod."""
        worker = self.workers.get(uid)
        if worker is not None:
            worker.wake()

    def refresh(self, uid: str) -> None:
        """The sources of the pod's volumes have changed: write the new content."""
        worker = self.workers.get(uid)
        if worker is not None:
            worker.refresh_volumes()

    def retry_blocked(self) -> None:
        """Something that pods may have waited for is there (a driver): try failed steps again at once."""
        for worker in self.workers.values():
            worker.retry_blocked()

    def evict(self, eviction: Eviction) -> None:
        """Fail a pod for the sake of the node."""
        worker = self.workers.get(eviction.pod.uid)
        if worker is not None:
            worker.evict(eviction)

    def drop_records(self) -> int:
        """Remove the containers of terminated pods from the runtime; return how many pods still have some."""
        with_records = [
            worker
            for worker in self.workers.values()
            if worker.memory.released and (worker.memory.seen.containers or worker.memory.seen.sandboxes)
        ]
        for worker in with_records:
            worker.drop_records()
        return len(with_records)

    def follow_removals(self, on_removed: Callable[[str], None]) -> None:
        """Call `on_removed(uid)` once nothing of a pod is left."""
        self._on_removed.append(on_removed)

    def follow_changes(self, on_changed: Callable[[PodMemory], None]) -> None:
        """Call `on_changed(memory)` when the status of a pod was computed. It must not block."""
        self._on_changed.append(on_changed)

    def report_changed(self, memory: PodMemory) -> None:
        """The status of a pod was computed, maybe as before: inform whoever follows (called by PodWorker)."""
        for on_changed in self._on_changed:
            on_changed(memory)

    def add(self, worker: PodWorker) -> None:
        """A worker was started (called by PodWorkers)."""
        self.remove(worker.memory.pod.uid)  # one in its place
        self._workers[worker.memory.pod.uid] = worker
        self._may_be_active[worker] = None

    def remove(self, uid: str) -> None:
        """The worker has ended (called by PodWorkers)."""
        worker = self._workers.pop(uid, None)
        if worker is not None:
            self._may_be_active.pop(worker, None)

    def report_removed(self, uid: str) -> None:
        """Everything of the pod is gone, its checkpoints too: inform whoever follows (called by PodWorkers)."""
        for on_removed in self._on_removed:
            on_removed(uid)
        self.cleaned_up.fire()

    # --- the view

    def pods(self) -> list[Pod]:
        """Desired pods, terminating ones included."""
        managed = [memory.pod for memory in self.memories() if memory.pod.source != "runtime"]
        return [*managed, *tuple(self.unmanaged.values())]

    def pod(self, namespace: str, name: str) -> Pod | None:
        """The pod of that name; of two, the one that is not deleted."""
        found = [pod for pod in self.pods() if (pod.namespace, pod.name) == (namespace, name)]
        return min(found, key=lambda pod: pod.is_deleted, default=None)

    def pod_by_uid(self, uid: str) -> Pod | None:
        worker = self.workers.get(uid)
        return worker.memory.pod if worker else self.unmanaged.get(uid)

    def status(self, uid: str) -> Json:
        worker = self.workers.get(uid)
        return worker.memory.status if worker else {}

    def observed(self, uid: str) -> ObservedPod:
        """The newest view of the runtime, of pods too that have no worker yet: after a restart without an API server
        the runtime knows pods that no source has listed. An empty one when nothing is known."""
        return self._seen(uid)

    def memory(self, uid: str) -> PodMemory | None:
        """All that the pod's worker knows; read only."""
        worker = self.workers.get(uid)
        return worker.memory if worker else None

    def memories(self) -> Iterable[PodMemory]:
        """Those of all pods, terminating ones included; read only."""
        # Metrics are collected in another thread while pods come and go: tuple() copies in one step.
        return [worker.memory for worker in tuple(self.workers.values())]

    def active(self) -> list[Pod]:
        """Pods that hold the resources they asked for (upstream: GetActivePods).

        A pod whose object is gone does not, even while its containers stop: the scheduler may already have given its
        resources to another pod.
        """
        managed = []
        for worker in tuple(self._may_be_active):
            memory = worker.memory
            if not _is_over(memory):
                managed.append(memory.pod)
            elif memory.gone or memory.termination is not None:
                # For good: pods that have ended or were rejected stay until somebody deletes them, thousands on a node,
                # and are looked at no more. Until its worker has looked, an object that says so may still be another.
                self._may_be_active.pop(worker, None)
        return [*managed, *tuple(self.unmanaged.values())]

    def running(self) -> Iterator[ContainerState]:
        """All running containers of the node."""
        for memory in self.memories():
            yield from (one for one in memory.seen.containers if one.state is RunState.RUNNING)

    def is_over(self, uid: str) -> bool:
        """Whether the pod has stopped and released everything."""
        worker = self.workers.get(uid)
        return worker is None or worker.memory.released

    async def until_over(self, uids: Collection[str], clock: Clock, limit: float) -> frozenset[str]:
        """Return as soon as all these pods are over, after `limit` seconds at the latest; those that are not."""
        await until_within(self.cleaned_up, lambda: all(map(self.is_over, uids)), clock, limit)
        return frozenset(uid for uid in uids if not self.is_over(uid))


def _is_over(memory: PodMemory) -> bool:
    phase = memory.status.get("phase", memory.pod.status.get("phase"))
    return memory.gone or phase in TERMINAL or (memory.termination is not None and memory.termination.fails)
