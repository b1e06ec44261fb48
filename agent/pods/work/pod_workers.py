"""Starts and stops the workers of pods: the sources (API, manifests) say what is wanted, a worker for each pod does it.

Pods that the runtime still runs and no source wants (orphans) are terminated too, but only once their source has
listed all its pods. What dead pods left on disk and in the cgroup tree is removed by a sweep every minute. Upstream:
HandlePodAdditions ... HandlePodCleanups of pkg/kubelet/kubelet.go and kubelet_pods.go, and pkg/kubelet/pod_workers.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from agent.admission.plan import labels as labels_of
from agent.admission.plan.admit import NodeView
from agent.admission.plan.preempt import admission
from agent.common.model import labels
from agent.common.model.pods import Kind, ObservedPod, Pod
from agent.common.model.refusal import Refusal
from agent.common.plan import demand
from agent.pods.model.facts import Cause, Termination
from agent.pods.plan.incoming import (
    INVALID_SPEC,
    MAX_FAILURES,
    admission_order,
    invalid_spec_message,
    is_up,
    orphan_pod,
    spec_problem,
    still_running_message,
    with_spec_of,
    without_spec,
)
from agent.pods.plan.status import TERMINAL
from agent.pods.plan.termination import rejection
from agent.pods.work import orphan_cleanup
from agent.pods.work.deps import PodDeps
from agent.pods.work.pod_worker import PodWorker
from agent.pods.work.registry import PodRegistry
from agent.pods.work.resizes import Resizes
from agent.resources.plan import resize_status
from agent.resources.plan.allocation import allocation_of, same
from agent.resources.plan.resize_labels import Trigger
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

_RESTART_PAUSE = 1.0  # seconds before a worker that failed is started again
_SWEEP_INTERVAL = 60.0  # seconds
_PUTS_AT_ONCE = 16  # pods of the first list that are put before the event loop gets a turn


class PodWorkers:
    """Owns the workers and their tasks: admits pods, starts a worker for each, and drops it once the pod is gone.

    The workers stand in `registry`, which everything else asks. Each of `sources` calls mark_synced() once it has
    listed its pods. `node` is called for each admission.
    """

    def __init__(
        self,
        registry: PodRegistry,
        deps: PodDeps,
        node: Callable[[], NodeView],
        sources: Collection[str] = ("api",),
    ) -> None:
        self._registry, self.deps, self._node = registry, deps, node
        self._sources, self._synced_sources = frozenset(sources), frozenset[str]()
        self._workers = registry.workers
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._invalid: set[str] = set()
        self._listed: set[str] = set()  # UIDs of the first list that have yet to be put
        self.resizes = Resizes(deps, self._workers, registry.active, node, registry.refresh)
        deps.observer.follow(self.on_seen)
        deps.resources.released.follow(registry.cleaned_up.fire)

    # --- from the sources

    def on_pod(self, change: str, raw: Json, old: Json | None) -> None:
        """A change of the API watch: ADDED, MODIFIED or DELETED (nodelib.kube.reflector)."""
        if old is not None and old["metadata"]["uid"] != raw["metadata"]["uid"]:
            self.remove(Pod(old))
        pod = Pod(raw)
        if change == "DELETED":
            self.remove(pod)
        else:
            self.put(pod)

    async def put_all(self, pods: Sequence[Pod]) -> None:
        """The first list of the API, before any change of it.

        Pods that went while no agent ran give back their CPUs and memory, and running pods are put, before a new pod
        is admitted.
        """
        uids = {pod.uid for pod in pods}
        self._listed = set(uids)
        self._note_synced("api", uids)
        self.deps.resources.managers.keep({*uids, *self._workers, *self.deps.observer.uids()})
        for number, pod in enumerate(admission_order(pods, self.deps.observer.uids()), 1):
            self.put(pod)
            self._listed.discard(pod.uid)
            if number % _PUTS_AT_ONCE == 0:
                await asyncio.sleep(0)

    def put(self, pod: Pod) -> None:
        """Add or update a pod. One that cannot be used harms no other, and what runs of it is never taken for gone."""
        try:
            self._put(pod)
        except Exception as error:
            log.exception("pod %s cannot be added or updated", pod.full_name)
            self._put_invalid(pod, str(error) if isinstance(error, NodewrightError) else repr(error))

    def _put(self, pod: Pod) -> None:
        worker = self._workers.get(pod.uid)
        is_changed = worker is None or _generation(worker.memory.desired) != _generation(pod)
        problem = spec_problem(pod) if is_changed else ""
        if problem or pod.uid in self._invalid:
            self._put_invalid(pod, problem)
            return
        if worker is None:
            self._registry.unmanaged.pop(pod.uid, None)
            self._start(pod)
            return
        self.deps.status.startups.shown(pod)
        before, wanted = worker.memory.pod, worker.memory.desired
        allocated = self.deps.resources.allocations.applied(pod)
        worker.update(allocated, pod)
        if _downward_fields(before) != _downward_fields(pod):
            worker.refresh_volumes()
        if not same(allocation_of(wanted), allocation_of(pod)):
            self.resizes.ask(wanted, pod)
        self.resizes.changed(before, allocated)

    def _put_invalid(self, pod: Pod, problem: str) -> None:
        """A pod that cannot be planned fails with an event, unless containers of it run: those are left alone.

        It is terminated when it is deleted.
        """
        worker = self._workers.get(pod.uid)
        if worker is not None and worker.memory.seen.sandboxes and pod.uid not in self._invalid:
            log.warning("pod %s: a change of its spec is ignored, it cannot be used: %s", pod.full_name, problem)
            if pod.is_deleted:
                worker.update(with_spec_of(pod, worker.memory.pod), with_spec_of(pod, worker.memory.desired))
            return
        if worker is None and is_up(self.deps.observer.seen(pod.uid)):
            self._leave_alone(pod, problem)
            return
        if worker is None:
            worker = self._run(PodWorker(without_spec(pod), self.deps, self._gone))
        worker.update(without_spec(pod))
        if problem:
            self._fail_invalid(worker, problem)

    def _leave_alone(self, pod: Pod, problem: str) -> None:
        """An earlier agent started the pod and this one cannot use its spec: only its deletion is carried out."""
        known = self._registry.unmanaged
        if pod.is_deleted:
            known.pop(pod.uid, None)
            self._invalid.add(pod.uid)
            self._resume_termination(self._run(PodWorker(without_spec(pod), self.deps, self._gone)))
            return
        if pod.uid not in known:
            text = still_running_message(problem)
            log.warning("pod %s: %s", pod.full_name, text)
            self.deps.events.emit(pod.raw, "Warning", INVALID_SPEC, text)
        known[pod.uid] = without_spec(pod)

    def remove(self, pod: Pod) -> None:
        """No source wants the pod any more; `pod` is its last known object."""
        self._listed.discard(pod.uid)
        if self._registry.unmanaged.pop(pod.uid, None) is not None:
            self._terminate_orphan(self.deps.observer.seen(pod.uid))
        worker = self._workers.get(pod.uid)
        if worker is not None:
            if pod.is_deleted:
                worker.update(self.deps.resources.allocations.applied(pod), pod)
            worker.update(None)
            # The scheduler may already have given its resources to another pod (PodRegistry.active).
            self.deps.resources.managers.release(pod.uid)
            self.resizes.retry(Trigger.REMOVED)

    def mark_synced(self, source: str, wanted: Collection[str] = ()) -> None:
        """This source has listed all its pods: its orphans are terminated. `wanted`: UIDs that it is about to put."""
        self._note_synced(source, wanted)
        if self._synced_sources >= self._sources:
            self._registry.synced.set()

    def _note_synced(self, source: str, wanted: Collection[str]) -> None:
        self._synced_sources |= {source}
        for uid in self.deps.observer.uids():
            if uid not in self._workers and uid not in wanted:
                self._terminate_orphan(self.deps.observer.seen(uid))

    # --- from the node

    def on_seen(self, seen: ObservedPod) -> None:
        """The runtime's view of a pod has changed."""
        worker = self._workers.get(seen.uid)
        if worker is not None:
            worker.observe(seen)
            if worker.memory.released:
                self._registry.cleaned_up.fire()
        else:
            self._terminate_orphan(seen)

    async def run_sweeps(self) -> None:
        """Until cancelled: clean up after pods that no source wants, once all sources and the runtime are listed."""
        await self._registry.synced.wait()
        await self.deps.observer.audited.wait()
        self.deps.resources.allocations.keep(self._known())
        self.deps.status.terminations.keep(self._known())
        self.deps.resources.managers.keep(self._known())
        self.resizes.open()
        while True:
            try:
                await self._sweep()
            except NodewrightError as error:
                log.warning("cleaning up after dead pods: %s", error)
            await self.deps.clock.sleep(_SWEEP_INTERVAL)

    async def close(self, patience: float = 0.0) -> None:
        """Stop the workers; their pods run on. Wait up to `patience` seconds for containers that are being started."""
        starting = [task for worker in self._workers.values() for task in worker.stop_planning()]
        if starting and patience:
            await asyncio.wait(starting, timeout=patience)
        await cancel_and_wait(*self._tasks.values())
        await self.deps.resources.volume_refreshes.close()

    # --- workers

    def _start(self, pod: Pod) -> None:
        allocated = self.deps.resources.allocations.applied(pod)
        worker = PodWorker(allocated, self.deps, self._gone, pod)
        refused = self._refusal(worker)
        if refused is not None:
            self.deps.events.emit(pod.raw, "Warning", refused.reason, refused.message)
            worker.terminate(rejection(refused.reason, refused.message, self.deps.clock.steady()))
            self.deps.metrics.admission_rejections.labels(labels_of.rejection(refused.reason)).inc()
        elif pod.source != "runtime" and not _is_terminal(pod):
            self.deps.resources.allocations.admit(allocated)
            if worker.memory.seen.sandboxes or self.deps.observer.is_unclear(pod.uid):
                self.deps.resources.managers.adopt(allocated)
            self.deps.status.startups.appeared(pod)
            mode, qos = labels_of.config_mode(pod), demand.qos_class(pod).value.lower()
            self.deps.metrics.pod_level_resources_admission.labels(mode, qos).inc()
            self.deps.metrics.containers_per_pod.observe(sum(1 for _ in pod.containers(Kind.MAIN)))
            worker.resize(resize_status.backfilled(pod.status))
        self._resume_termination(worker)
        self._run(worker)
        if allocated is not pod:
            self.resizes.request(pod.uid, Trigger.ADDED)

    def _run(self, worker: PodWorker) -> PodWorker:
        pod = worker.memory.pod
        self._registry.add(worker)
        self._tasks[pod.uid] = asyncio.create_task(self._run_until_gone(worker), name=f"pod/{pod.full_name}")
        return worker

    def _resume_termination(self, worker: PodWorker) -> None:
        """Go on with a termination from before a restart, so that no grace starts anew.

        Not for static pods: they may be wanted again.
        """
        pod = worker.memory.pod
        known = self.deps.status.terminations.of(pod.uid) if pod.source in ("api", "runtime") else None
        if known is not None and worker.memory.seen.sandboxes:
            worker.terminate(known)

    def _refusal(self, worker: PodWorker) -> Refusal | None:
        """Why the node rejects a new pod; None: it is admitted. May evict others to make room for a critical pod."""
        pod = worker.memory.pod
        runs = worker.memory.seen.sandboxes or self.deps.observer.is_unclear(pod.uid)
        if pod.source == "runtime" or pod.is_deleted or runs or _is_terminal(pod):
            return None
        refused = self.deps.resources.managers.admit(pod)
        if refused is not None:
            return refused
        refused, evictions = admission(pod, self._registry.active(), self._node())
        if refused is not None:
            self.deps.resources.managers.release(pod.uid)
        for one in evictions:
            self.deps.events.emit(one.pod.raw, "Warning", one.reason, one.message)
            log.info("pod %s makes room for critical pod %s", one.pod.full_name, pod.full_name)
            self._registry.evict(one)
            self.deps.metrics.preemptions.labels(one.signal).inc()
        return refused

    def _fail_invalid(self, worker: PodWorker, problem: str) -> None:
        """Fail a pod that cannot be planned and of which nothing runs."""
        pod, text = worker.memory.pod, invalid_spec_message(problem)
        if pod.uid not in self._invalid:
            self._invalid.add(pod.uid)
            self.deps.events.emit(pod.raw, "Warning", INVALID_SPEC, text)
        worker.update(without_spec(pod))
        worker.terminate(Termination(Cause.REJECTED, self.deps.clock.steady(), 1, INVALID_SPEC, text))

    async def _run_until_gone(self, worker: PodWorker) -> None:
        failures = 0
        while True:
            try:
                await worker.run()
                return
            except Exception as error:
                log.exception("pod %s: its worker failed and is started again", worker.memory.pod.full_name)
                failures += 1
                if failures >= MAX_FAILURES and not worker.memory.seen.sandboxes:
                    self._fail_invalid(worker, str(error))
            await self.deps.clock.sleep(_RESTART_PAUSE)

    def _gone(self, uid: str) -> None:
        self._tasks.pop(uid, None)
        self._registry.remove(uid)
        self._invalid.discard(uid)
        self.deps.resources.volume_refreshes.remove(uid)
        self.deps.resources.allocations.remove(uid)
        self.deps.status.terminations.remove(uid)
        self.deps.resources.managers.remove(uid)
        self.deps.status.startups.remove(uid)
        self.resizes.retry(Trigger.REMOVED)
        self._registry.report_removed(uid)

    def _terminate_orphan(self, seen: ObservedPod) -> None:
        """Terminate a pod that only the runtime knows, unless its source may yet list it."""
        orphan = orphan_pod(seen)
        if orphan is None or self._is_known(seen.uid):
            return
        if not self._is_synced(labels.source_of(seen)):
            return
        log.info("pod %s (%s) is wanted by no source: it is terminated", orphan.full_name, seen.uid)
        self.deps.metrics.orphaned_runtime_pods.inc()
        self._start(orphan)
        self._workers[seen.uid].update(None)
        self.deps.resources.managers.release(seen.uid)

    def _is_synced(self, source: str) -> bool:
        """Whether this source has listed its pods; one that is not configured any more counts once all others have."""
        return self._registry.synced.is_set() or source in self._synced_sources

    async def _sweep(self) -> None:
        for uid in self.deps.observer.uids():
            if uid not in self._workers:
                self._terminate_orphan(self.deps.observer.seen(uid))
        await orphan_cleanup.remove(self.deps, self._is_known)

    def _known(self) -> frozenset[str]:
        """UIDs of all pods that a source has listed or that are being ended: nothing of these is swept."""
        return frozenset((*self._workers, *self._registry.unmanaged, *self._listed))

    def _is_known(self, uid: str) -> bool:
        return uid in self._workers or uid in self._registry.unmanaged or uid in self._listed


def _downward_fields(pod: Pod) -> tuple[object, object]:
    """The changeable fields that downward API volumes show, except resources, which a resize refreshes itself."""
    return pod.meta.get("labels"), pod.meta.get("annotations")


def _generation(pod: Pod) -> object:
    return pod.meta.get("generation")


def _is_terminal(pod: Pod) -> bool:
    return pod.status.get("phase") in TERMINAL
