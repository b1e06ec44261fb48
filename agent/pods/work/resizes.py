"""Resizes that pods ask for: promised as soon as the node has room for them, put off until then.

Follows the allocation manager of pkg/kubelet/allocation: whenever a pod changes, shrinks or
goes, and every few minutes, all that wait are tried again in the order of pending_order().
Nothing is judged before the sources have told all pods, or room would be given away twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from agent.admission.plan.admit import NodeView, refusal
from agent.common.model.pods import Pod
from agent.pods.work.deps import PodDeps
from agent.pods.work.pod_worker import PodWorker
from agent.resources.plan import allocation, resize_status

log = logging.getLogger(__name__)

RETRY_INTERVAL = 180.0  # seconds; upstream's retryDelay


class Resizes:
    """`workers` by pod UID; `holders()`: pods, as they are allocated, that hold room on the node."""

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
        self._waiting: set[str] = set()
        self._open = False

    def request(self, uid: str) -> None:
        """What this pod wants has changed: try to promise it, and all that wait with it."""
        self._waiting.add(uid)
        self.retry()

    def open(self) -> None:
        """All sources have spoken."""
        self._open = True
        self.retry()

    def changed(self, before: Pod, now: Pod) -> None:
        """A pod is not what it was: it may have left room."""
        if self._waiting and (_ended(now) > _ended(before) or allocation.shrank(before, now)):
            self.retry()

    def retry(self) -> None:
        """Try all that wait."""
        if not self._open or not self._waiting:
            return
        for uid in self._in_order():
            self._waiting.discard(uid)
            if self._judge(self._workers[uid]):
                self._waiting.add(uid)

    async def run(self) -> None:
        """Until cancelled: try again every few minutes, whatever else happens."""
        while True:
            await self._deps.clock.sleep(RETRY_INTERVAL)
            self.retry()

    def _in_order(self) -> list[str]:
        self._waiting = {uid for uid in self._waiting if uid in self._workers}
        entries = []
        for uid in self._waiting:
            memory = self._workers[uid].memory
            pending = memory.resize.pending
            since = pending.since if pending is not None else self._deps.clock.now()
            entries.append((memory.desired, memory.pod, since))
        return [pod.uid for pod in allocation.pending_order(entries)]

    def _judge(self, worker: PodWorker) -> bool:
        """Promise what is wanted if it fits; whether it is to be tried again."""
        memory, now = worker.memory, self._deps.clock.now()
        if memory.termination is not None or memory.gone:
            return False
        wanted = memory.desired
        if self._deps.resources.allocations.applied(wanted) is wanted:
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
            if news:
                text = resize_status.event_message(f"Pod resize {reason}", wanted, generation, refused.message)
                self._deps.events.emit(wanted.raw, "Warning", f"Resize{reason}", text)
            return reason != resize_status.INFEASIBLE
        self._deps.resources.allocations.allocate(wanted)
        log.info("pod %s: resize to generation %d is allocated", wanted.full_name, generation)
        text = resize_status.event_message("Pod resize started", wanted, generation)
        self._deps.events.emit(wanted.raw, "Normal", "ResizeStarted", text)
        worker.resize(resize_status.allocated(generation, now), wanted)
        self._on_allocated(wanted.uid)
        return False


def _ended(pod: Pod) -> bool:
    return pod.status.get("phase") in ("Succeeded", "Failed")
