"""From the sources of pods to their workers, and the cleaning up after pods that nobody wants any more.

A source only says what is desired; a worker of its own brings each pod there. Pods that the
runtime, the disk or the cgroup tree know and no source wants are brought down too, but only
once the sources have told everything they know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from agent.admission.plan.admit import NodeView
from agent.admission.plan.preempt import admission
from agent.common.model import labels
from agent.common.model.pods import ObservedPod, Pod
from agent.common.model.refusal import Refusal
from agent.pods.model.facts import Cause, Termination
from agent.pods.plan import invalid_spec as unfit
from agent.pods.plan.admission_order import in_order
from agent.pods.plan.orphans import orphan_pod
from agent.pods.plan.status import TERMINAL
from agent.pods.plan.termination import rejection
from agent.pods.work import orphan_cleanup as remains
from agent.pods.work.deps import PodDeps
from agent.pods.work.pod_worker import PodWorker
from agent.pods.work.registry import PodRegistry
from agent.pods.work.resizes import Resizes
from agent.resources.plan import resize_status
from agent.resources.plan.allocation import allocation_of, same
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

log = logging.getLogger(__name__)

_RESTART_PAUSE = 1.0  # seconds, after a worker that failed itself
_SWEEP_INTERVAL = 60.0
_BREATH = 16  # pods of the first list between two looks at the rest of the loop


class PodTable:
    """`registry` is filled here. `sources`: all that tell of pods; each says told() once it has listed its own."""

    def __init__(
        self,
        registry: PodRegistry,
        deps: PodDeps,
        node: Callable[[], NodeView],
        sources: Collection[str] = ("api",),
    ) -> None:
        self._registry, self.deps, self._node = registry, deps, node
        self._sources, self._told = frozenset(sources), frozenset[str]()
        self._workers = registry.workers
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unfit: set[str] = set()
        self._arriving: set[str] = set()  # UIDs that the first list names and that have yet to be put
        self.resizes = Resizes(deps, self._workers, registry.active, node, registry.refresh)
        deps.observer.follow(self.on_seen)
        deps.holdings.released.follow(registry.cleaned_up.fire)

    # --- what the sources say

    def on_pod(self, change: str, raw: Json, old: Json | None) -> None:
        """A change of the API watch: ADDED, MODIFIED or DELETED (nodelib.kube.reflector)."""
        if old is not None and old["metadata"]["uid"] != raw["metadata"]["uid"]:
            self.drop(Pod(old))
        pod = Pod(raw)
        if change == "DELETED":
            self.drop(pod)
        else:
            self.put(pod)

    async def first(self, pods: Sequence[Pod]) -> None:
        """All that the API has for this node, before it tells of changes: pods that left while no agent ran give back
        what they had, and those that run are known, before one that is new is admitted."""
        uids = {pod.uid for pod in pods}
        self._arriving = set(uids)
        self._tell("api", uids)
        self.deps.holdings.managers.keep({*uids, *self._workers, *self.deps.observer.uids()})
        for number, pod in enumerate(in_order(pods, self.deps.observer.uids()), 1):
            try:
                self.put(pod)
                self._arriving.discard(pod.uid)
            except Exception:
                log.exception("pod %s cannot be taken up; what runs of it is left alone", pod.full_name)
            if number % _BREATH == 0:
                await asyncio.sleep(0)

    def put(self, pod: Pod) -> None:
        """This is desired now."""
        worker = self._workers.get(pod.uid)
        problem = unfit.problem(pod) if worker is None or _generation(worker.memory.desired) != _generation(pod) else ""
        if problem or pod.uid in self._unfit:
            self._put_unfit(pod, problem)
            return
        if worker is None:
            self._start(pod)
            return
        self.deps.status.startups.shown(pod)
        before, wanted = worker.memory.pod, worker.memory.desired
        allocated = self.deps.holdings.allocations.applied(pod)
        worker.desire(allocated, pod)
        if _visible(before) != _visible(pod):
            worker.refresh_volumes()
        if not same(allocation_of(wanted), allocation_of(pod)):
            self.resizes.ask(pod.uid)
        self.resizes.changed(before, allocated)

    def _put_unfit(self, pod: Pod, problem: str) -> None:
        """A pod that no plan can be made of: told, failed, and brought down when it is deleted."""
        worker = self._workers.get(pod.uid)
        if worker is not None and worker.memory.seen.sandboxes and pod.uid not in self._unfit:
            log.warning("pod %s: a change that cannot be worked with is left out: %s", pod.full_name, problem)
            return
        if worker is None:
            worker = self._run(PodWorker(unfit.bare(pod), self.deps, self._gone))
        worker.desire(unfit.bare(pod))
        if problem:
            self._give_up(worker, problem)

    def drop(self, pod: Pod) -> None:
        """No source wants it any more; `pod` is the last that was known of it."""
        self._arriving.discard(pod.uid)
        worker = self._workers.get(pod.uid)
        if worker is not None:
            if pod.is_deleted:
                worker.desire(self.deps.holdings.allocations.applied(pod), pod)
            worker.desire(None)
            # The scheduler has already given its room away, exclusive CPUs and memory included (PodRegistry.active).
            self.deps.holdings.managers.release(pod.uid)
            self.resizes.retry()

    def told(self, source: str, wanted: Collection[str] = ()) -> None:
        """This source has said everything that it wants; `wanted`: UIDs that it is about to put. Its orphans go."""
        self._tell(source, wanted)
        if self._told >= self._sources:
            self._registry.synced.set()

    def _tell(self, source: str, wanted: Collection[str]) -> None:
        self._told |= {source}
        for uid in self.deps.observer.uids():
            if uid not in self._workers and uid not in wanted:
                self._adopt(self.deps.observer.seen(uid))

    # --- what the node says

    def on_seen(self, seen: ObservedPod) -> None:
        """The runtime's view of a pod has changed."""
        worker = self._workers.get(seen.uid)
        if worker is not None:
            worker.see(seen)
            if worker.memory.released:
                self._registry.cleaned_up.fire()
        else:
            self._adopt(seen)

    async def run_sweeps(self) -> None:
        """Until cancelled: bring down what no source wants. Starts once the sources and the runtime have spoken."""
        await self._registry.synced.wait()
        await self.deps.observer.audited.wait()
        self.deps.holdings.allocations.keep(self._workers.keys())
        self.deps.status.terminations.keep(self._workers.keys())
        self.deps.holdings.managers.keep(self._workers.keys())
        self.resizes.open()
        while True:
            try:
                await self._sweep()
            except NodewrightError as error:
                log.warning("looking for what dead pods left behind: %s", error)
            await self.deps.clock.sleep(_SWEEP_INTERVAL)

    async def close(self, patience: float = 0.0) -> None:
        """Stop the workers; their pods run on. Containers that are being started have `patience` seconds for it."""
        starting = [task for worker in self._workers.values() for task in worker.halt()]
        if starting and patience:
            await asyncio.wait(starting, timeout=patience)
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.deps.holdings.refreshes.close()

    # --- workers

    def _start(self, pod: Pod) -> None:
        allocated = self.deps.holdings.allocations.applied(pod)
        worker = PodWorker(allocated, self.deps, self._gone, pod)
        refused = self._refusal(worker)
        if refused is not None:
            self.deps.events.emit(pod.raw, "Warning", refused.reason, refused.message)
            worker.end(rejection(refused.reason, refused.message, self.deps.clock.now()))
        elif pod.source != "runtime" and not _is_terminal(pod):
            self.deps.holdings.allocations.admit(allocated)
            if worker.memory.seen.sandboxes:
                self.deps.holdings.managers.adopt(allocated)
            self.deps.status.startups.appeared(pod)
            worker.resize(resize_status.backfilled(pod.status))
        self._resume_termination(worker)
        self._run(worker)
        if allocated is not pod:
            self.resizes.ask(pod.uid)

    def _run(self, worker: PodWorker) -> PodWorker:
        pod = worker.memory.pod
        self._workers[pod.uid] = worker
        self._tasks[pod.uid] = asyncio.create_task(self._guard(worker), name=f"pod/{pod.full_name}")
        return worker

    def _resume_termination(self, worker: PodWorker) -> None:
        """What an earlier life of the agent was bringing down gets no new grace. A static pod may be wanted again."""
        pod = worker.memory.pod
        known = self.deps.status.terminations.of(pod.uid) if pod.source in ("api", "runtime") else None
        if known is not None and worker.memory.seen.sandboxes:
            worker.end(known)

    def _refusal(self, worker: PodWorker) -> Refusal | None:
        """Why the node does not take a pod that is new to it."""
        pod = worker.memory.pod
        if pod.source == "runtime" or pod.is_deleted or worker.memory.seen.sandboxes or _is_terminal(pod):
            return None
        refused = self.deps.holdings.managers.admit(pod)
        if refused is not None:
            return refused
        refused, evictions = admission(pod, self._registry.active(), self._node())
        if refused is not None:
            self.deps.holdings.managers.release(pod.uid)
        for one in evictions:
            self.deps.events.emit(one.pod.raw, "Warning", one.reason, one.message)
            log.info("pod %s makes room for critical pod %s", one.pod.full_name, pod.full_name)
            self._registry.evict(one)
        return refused

    def _give_up(self, worker: PodWorker, problem: str) -> None:
        """Fail a pod that nothing runs of and that no plan can be made of."""
        pod, text = worker.memory.pod, unfit.message(problem)
        if pod.uid not in self._unfit:
            self._unfit.add(pod.uid)
            self.deps.events.emit(pod.raw, "Warning", unfit.REASON, text)
        worker.desire(unfit.bare(pod))
        worker.end(Termination(Cause.REJECTED, self.deps.clock.now(), 1, unfit.REASON, text))

    async def _guard(self, worker: PodWorker) -> None:
        failures = 0
        while True:
            try:
                await worker.run()
                return
            except Exception as error:
                log.exception("pod %s: its worker failed and is started again", worker.memory.pod.full_name)
                failures += 1
                if failures >= unfit.TRIES and not worker.memory.seen.sandboxes:
                    self._give_up(worker, str(error))
            await self.deps.clock.sleep(_RESTART_PAUSE)

    def _gone(self, uid: str) -> None:
        self._tasks.pop(uid, None)
        self._workers.pop(uid, None)
        self._unfit.discard(uid)
        self.deps.holdings.refreshes.forget(uid)
        self.deps.holdings.allocations.remove(uid)
        self.deps.status.terminations.forget(uid)
        self.deps.holdings.managers.remove(uid)
        self.deps.status.startups.forget(uid)
        self.resizes.retry()
        self._registry.removed(uid)

    def _adopt(self, seen: ObservedPod) -> None:
        orphan = orphan_pod(seen)
        if orphan is None or seen.uid in self._workers or seen.uid in self._arriving:
            return
        if not self._is_known(labels.source_of(seen)):
            return
        log.info("pod %s (%s) is wanted by nobody: it is brought down", orphan.full_name, seen.uid)
        self._start(orphan)
        self._workers[seen.uid].desire(None)
        self.deps.holdings.managers.release(seen.uid)

    def _is_known(self, source: str) -> bool:
        """Everything that this source wants has been told; nobody tells of pods of a source that is no more."""
        return self._registry.synced.is_set() or source in self._told

    async def _sweep(self) -> None:
        for uid in self.deps.observer.uids():
            if uid not in self._workers:
                self._adopt(self.deps.observer.seen(uid))
        await remains.remove(self.deps, self._workers)


def _visible(pod: Pod) -> tuple[object, object]:
    """What downward API volumes can show of it and can change; of resources the resize itself tells."""
    return pod.meta.get("labels"), pod.meta.get("annotations")


def _generation(pod: Pod) -> object:
    return pod.meta.get("generation")


def _is_terminal(pod: Pod) -> bool:
    return pod.status.get("phase") in TERMINAL
