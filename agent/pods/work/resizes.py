"""In-place resizes: a requested one is allocated as soon as the node has room for it, and pending until then.

Follows the allocation manager (pkg/kubelet/allocation): whenever a pod shrinks or goes, and every few minutes, all
pending resizes are tried again in the order of pending_order(). None is tried before all sources have listed their
pods, or the same room could be allocated twice.

Each try compares a pod with all others. They are made by run(), one pod between two turns of the event loop, and not
again until several times as long has passed: whoever has a hundred pods with pending resizes, and changes one of them
as fast as the API takes it, must not hold up the node. (Upstream tries all of them in its one loop.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from agent.admission.plan.admit import NodeView, refusal
from agent.common.model.pods import Pod
from agent.pods.work.deferrals import end_deferral
from agent.pods.work.deps import PodDeps
from agent.pods.work.pod_worker import PodWorker
from agent.resources.plan import allocation, resize_status
from agent.resources.plan.resize_labels import Resolution, Trigger, operations
from nodelib.clock import at_most, rest_after

log = logging.getLogger(__name__)

RETRY_INTERVAL = 180.0  # seconds; upstream's retryDelay
_REST = 4  # times as long as it took to try all passes until the next time


class Resizes:
    """`workers` by pod UID; `holders()`: the pods that hold resources of the node, as allocated.

    `on_allocated(uid)` is called for each resize that is allocated. run() is long-lived.
    """

    def __init__(
        self,
        deps: PodDeps,
        workers: Mapping[str, PodWorker],
        holders: Callable[[], Iterable[Pod]],
        node: Callable[[], NodeView],
        on_allocated: Callable[[str], None],
    ) -> None:
        self._deps, self._workers, self._holders, self._node = deps, workers, holders, node
        self._on_allocated = on_allocated
        self._pending: set[str] = set()
        self._open = False
        self._wake = asyncio.Event()
        self._trigger: Trigger | None = None  # what has woken it first

    def request(self, uid: str, trigger: Trigger = Trigger.UPDATED) -> None:
        """The pod asks for other resources: try to allocate them, and all pending resizes."""
        self._pending.add(uid)
        self.retry(trigger)

    def ask(self, before: Pod, now: Pod) -> None:
        """The pod's object asks for other resources than `before`."""
        if self._deps.resources.allocations.allocated(now.uid) is not None:
            for labels in operations(before, now):
                self._deps.metrics.container_requested_resizes.labels(*labels).inc()
        self.request(now.uid)

    def open(self) -> None:
        """All sources have listed their pods: resizes may be allocated from now on."""
        self._open = True
        self.retry(Trigger.ADDED)

    def changed(self, before: Pod, now: Pod) -> None:
        """A pod has changed: if it has ended or shrunk, there may be room."""
        if not self._pending:
            return
        if _ended(now) > _ended(before):
            self.retry(Trigger.TERMINATED)
        elif allocation.shrank(before, now):
            self.retry(Trigger.RESIZED)

    def retry(self, trigger: Trigger) -> None:
        """Try all pending resizes soon."""
        if self._open and self._pending:
            self._trigger = self._trigger or trigger
            self._wake.set()

    async def run(self) -> None:
        """Until cancelled: try pending resizes when there may be room, and every few minutes."""
        clock = self._deps.clock
        while True:
            await at_most(clock, RETRY_INTERVAL, self._wake)
            self._wake.clear()
            trigger, self._trigger = self._trigger or Trigger.PERIODIC, None
            began = clock.monotonic()
            await self._try_all(trigger)
            await rest_after(clock, began, _REST)

    async def _try_all(self, trigger: Trigger) -> None:
        for uid in self._pending_order() if self._open else ():
            worker = self._workers.get(uid)
            self._pending.discard(uid)
            if worker is not None and self._is_still_pending(worker, trigger):
                self._pending.add(uid)
            await asyncio.sleep(0)

    def _pending_order(self) -> list[str]:
        self._pending = {uid for uid in self._pending if uid in self._workers}
        entries = []
        for uid in self._pending:
            memory = self._workers[uid].memory
            pending = memory.resize.pending
            since = pending.since if pending is not None else self._deps.clock.now()
            entries.append((memory.desired, memory.pod, since))
        return [pod.uid for pod in allocation.pending_order(entries)]

    def _is_still_pending(self, worker: PodWorker, trigger: Trigger) -> bool:
        """Allocate the resize if it fits; return whether it must be tried again later."""
        memory, now = worker.memory, self._deps.clock.now()
        if memory.termination is not None or memory.gone:
            return False
        wanted = memory.desired
        if self._deps.resources.allocations.applied(wanted) is wanted:
            end_deferral(self._deps, memory, Resolution.REVERTED)
            worker.resize(resize_status.settled(memory.resize))
            return False
        others = [pod for pod in self._holders() if pod.uid != wanted.uid]
        managers_refusal = self._deps.resources.managers.resize_refusal(wanted, memory.pod)
        refused = managers_refusal or refusal(wanted, others, self._node())
        generation = int(wanted.meta.get("generation") or 0)
        if refused is not None:
            state, news = resize_status.put_off(memory.resize, refused.reason, refused.message, generation, now)
            worker.resize(state)
            reason = state.pending.reason if state.pending is not None else ""
            if reason == resize_status.INFEASIBLE:
                self._deps.metrics.pod_infeasible_resizes.labels(refused.detail).inc()
            if news:
                text = resize_status.event_message(f"Pod resize {reason}", wanted, generation, refused.message)
                self._deps.events.emit(wanted.raw, "Warning", f"Resize{reason}", text)
            return reason != resize_status.INFEASIBLE
        self._deps.resources.allocations.allocate(wanted)
        log.info("pod %s: resize to generation %d is allocated", wanted.full_name, generation)
        text = resize_status.event_message("Pod resize started", wanted, generation)
        self._deps.events.emit(wanted.raw, "Normal", "ResizeStarted", text)
        if end_deferral(self._deps, memory, Resolution.ACCEPTED):
            self._deps.metrics.pod_deferred_accepted_resizes.labels(trigger).inc()
        worker.resize(resize_status.allocated(generation, now), wanted)
        self._on_allocated(wanted.uid)
        return False


def _ended(pod: Pod) -> bool:
    return pod.status.get("phase") in ("Succeeded", "Failed")
