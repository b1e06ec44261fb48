"""Answers why a pod is in its state, from what its worker knows. Used by the server (server/work/why.py)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from agent.common.model.pods import Pod
from agent.explain.model import Explanation
from agent.explain.plan.explain import explain
from agent.explain.plan.record import Record
from agent.explain.plan.resource_cost import costs
from agent.images.work.images import ImageManager
from agent.pods.ports import Probes
from agent.pods.work.registry import PodRegistry
from agent.stats.model import Snapshot
from nodelib.clock import Clock


class Snapshots(Protocol):
    """stats/work.py StatsProvider."""

    async def snapshot(self) -> Snapshot: ...


class Explainer:
    """Explains the pods of this node.

    `admission_detail(uid)` says what a refused pod asked for and what was free, "" for any other pod; `problems()` is
    what the runtime says the node lacks, empty when all is well; `limited(pod)` why a pod may begin few connections.
    """

    def __init__(
        self,
        node: str,
        pods: PodRegistry,
        admission_detail: Callable[[str], str],
        probes: Probes,
        images: ImageManager,
        stats: Snapshots,
        problems: Callable[[], tuple[str, ...]],
        limited: Callable[[Pod], str],
        clock: Clock,
    ) -> None:
        self._node, self._pods, self._probes, self._images = node, pods, probes, images
        self._admission_detail = admission_detail
        self._stats, self._problems, self._limited, self._clock = stats, problems, limited, clock

    async def pod(self, namespace: str, name: str) -> Explanation | None:
        """The pod with its resource costs. None: this node has no such pod."""
        await self._images.refresh()
        found = self._pods.pod(namespace, name)
        if found is None or (explanation := self._explain(found)) is None:
            return None
        stats = next((one for one in (await self._stats.snapshot()).pods if one.uid == found.uid), None)
        return replace(explanation, costs=costs(found, stats, self._probes.findings(found.uid)))

    async def all(self) -> list[Explanation]:
        """Every pod of the node, sorted by namespace and name, without resource costs."""
        await self._images.refresh()
        pods = sorted(self._pods.pods(), key=lambda pod: (pod.namespace, pod.name))
        return [found for pod in pods if (found := self._explain(pod)) is not None]

    def _explain(self, pod: Pod) -> Explanation | None:
        memory = self._pods.memory(pod.uid)
        if memory is None:
            return None
        record = Record(
            node=self._node,
            pod=memory.pod,
            status=memory.status,
            seen=memory.seen,
            facts=memory.facts(self._clock),
            plan=memory.plan,
            pulls=self._images.pulls(pod.uid),
            unread_secrets=self._images.unread_secrets.of(pod.uid),
            probes=self._probes.findings(pod.uid),
            timeline=memory.timeline.entries(),
            under_way=memory.timeline.under_way(),
            node_problems=self._problems(),
            limited=self._limited(memory.pod),
            refused_for=self._admission_detail(pod.uid),
        )
        return explain(record)
