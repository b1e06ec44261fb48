"""The static pods that are wanted now, each handed to the pod workers when its name is free.

Two pods of one name must not run at the same time: a changed manifest is another pod, which waits here until nothing of
the old one is left (waitingToStartStaticPodsByFullname in pkg/kubelet/pod_workers.go).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from agent.common.model.pods import Pod
from agent.common.work.observable import Signal
from agent.pods.work.memory import PodMemory
from agent.pods.work.registry import PodRegistry

log = logging.getLogger(__name__)


class PodWorkers(Protocol):
    """The PodWorkers of pods/work/pod_workers.py."""

    def put(self, pod: Pod) -> None: ...

    def remove(self, pod: Pod) -> None: ...

    def mark_synced(self, source: str, wanted: Collection[str] = ()) -> None: ...


class StaticPods:
    """Which static pods are wanted; follow() it. `on_restart()`: one with the UID of one that has ended is started."""

    def __init__(self, workers: PodWorkers, pods: PodRegistry, on_restart: Callable[[], None] = lambda: None) -> None:
        self._workers, self._pods, self._on_restart = workers, pods, on_restart
        self._wanted: dict[str, dict[str, Pod]] = {}
        self._all: Mapping[str, Pod] = {}
        self._changed = Signal()
        pods.follow_removals(self._on_removed)

    def follow(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever the wanted or the running static pods have changed."""
        self._changed.follow(on_change)

    def replace(self, source: str, pods: Iterable[Pod]) -> None:
        """These are all the pods that `source` wants now."""
        before = self._wanted.get(source, {})
        fresh = {pod.full_name: pod for pod in {pod.uid: pod for pod in pods}.values()}
        self._wanted[source] = fresh
        # Of two sources that want the same name, the first in the alphabet gets it.
        self._all = {name: pod for one in sorted(self._wanted, reverse=True) for name, pod in self._wanted[one].items()}
        for name, old in before.items():
            if name not in fresh or fresh[name].uid != old.uid:
                log.info("static pod %s (%s) is no longer wanted", name, old.uid)
                self._workers.remove(old)
        self._workers.mark_synced(source, [pod.uid for pod in fresh.values()])
        self._start(pod for name, pod in fresh.items() if before.get(name) is not pod)
        self._changed.fire()

    def wanted(self) -> Mapping[str, Pod]:
        """By full name, as they are now: whoever keeps it keeps what was wanted then."""
        return self._all

    def wanted_by(self, source: str) -> dict[str, Pod]:
        """By full name."""
        return dict(self._wanted.get(source, {}))

    def terminating(self) -> frozenset[str]:
        """Full names of static pods that are not wanted any more and are not cleaned up yet."""
        wanted = {pod.uid for pod in self.wanted().values()}
        present = (memory.pod for memory in self._pods.memories() if memory.pod.source != "api")
        return frozenset(pod.full_name for pod in present if pod.uid not in wanted)

    def _on_removed(self, uid: str) -> None:
        """Nothing of this pod is left: its name is free."""
        held, uids = self._held()
        if missing := [pod for name, pod in self._all.items() if name not in held and pod.uid not in uids]:
            if any(pod.uid == uid for pod in missing):
                self._on_restart()
            self._start(missing)
        self._changed.fire()

    def _start(self, pods: Iterable[Pod]) -> None:
        held, uids = self._held()
        for pod in pods:
            if self._all.get(pod.full_name) is not pod:
                continue
            if uids.get(pod.uid, pod.full_name) != pod.full_name:
                log.info("static pod %s waits until %s, which has its UID, is gone", pod.full_name, uids[pod.uid])
                continue
            holder = _holder(held.get(pod.full_name, ()), pod)
            if holder is None or (holder.pod.uid == pod.uid and not holder.gone):
                self._workers.put(pod)
                uids[pod.uid] = pod.full_name
                continue
            # The same manifest is back while its pod still terminates: its containers go on counting their restarts.
            holder.has_successor = holder.pod.uid == pod.uid and pod.restart_policy == "Always"
            log.info("static pod %s waits until %s is cleaned up", pod.full_name, holder.pod.uid)

    def _held(self) -> tuple[dict[str, list[PodMemory]], dict[str, str]]:
        """Pods of manifests that are there, by full name; full names of all pods by UID.

        Made once for many: it goes through all pods of the node.
        """
        found: dict[str, list[PodMemory]] = {}
        uids: dict[str, str] = {}
        for one in self._pods.memories():
            uids[one.pod.uid] = one.pod.full_name
            if one.pod.source != "api":
                found.setdefault(one.pod.full_name, []).append(one)
        return found, uids


def _holder(named: Collection[PodMemory], pod: Pod) -> PodMemory | None:
    """Of the pods that have its name, the one that it has to wait for, or else itself."""
    return next((one for one in named if one.gone or one.pod.uid != pod.uid), next(iter(named), None))
