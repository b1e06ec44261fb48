"""Answers why a pod is as it is, from what its worker remembers; for the server and for people on the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from agent.model.explain import Explanation
from agent.model.pods import Pod
from agent.model.stats import Snapshot
from agent.plan.costs import costs
from agent.plan.explain import Record, explain
from agent.ports import Probes
from agent.work.images import ImageDesk
from agent.work.pod_table import PodTable
from nodelib.clock import Clock


class Snapshots(Protocol):
    """work/stats.py StatsProvider."""

    async def snapshot(self) -> Snapshot: ...


class Explainer:
    """`problems()`: what the runtime says the node lacks, "" and nothing when all is well."""

    def __init__(
        self,
        node: str,
        table: PodTable,
        probes: Probes,
        images: ImageDesk,
        stats: Snapshots,
        problems: Callable[[], tuple[str, ...]],
        clock: Clock,
    ) -> None:
        self._node, self._table, self._probes, self._images = node, table, probes, images
        self._stats, self._problems, self._clock = stats, problems, clock

    async def pod(self, namespace: str, name: str) -> Explanation | None:
        """With what it costs. None: this node has no such pod."""
        await self._images.look()
        found = self._table.pod(namespace, name)
        if found is None or (explanation := self._explain(found)) is None:
            return None
        figures = next((one for one in (await self._stats.snapshot()).pods if one.uid == found.uid), None)
        return replace(explanation, costs=costs(found, figures, self._probes.findings(found.uid)))

    async def all(self) -> list[Explanation]:
        """Every pod of the node, by namespace and name."""
        await self._images.look()
        pods = sorted(self._table.pods(), key=lambda pod: (pod.namespace, pod.name))
        return [found for pod in pods if (found := self._explain(pod)) is not None]

    def _explain(self, pod: Pod) -> Explanation | None:
        memory = self._table.memory(pod.uid)
        if memory is None:
            return None
        record = Record(
            now=self._clock.now(),
            node=self._node,
            pod=memory.pod,
            status=memory.status,
            seen=memory.seen,
            reason=memory.reason,
            wait_until=memory.wait_until,
            waiting=memory.waiting,
            blocked=memory.blocked,
            failures=memory.failures,
            images=memory.images,
            pulls=self._images.pulls(pod.uid),
            backoff=memory.backoff,
            ending=memory.ending,
            confirmed=memory.confirmed,
            probes=self._probes.findings(pod.uid),
            timeline=memory.timeline.entries(),
            under_way=memory.timeline.under_way(),
            node_problems=self._problems(),
            refused_for=self._table.parts.exclusive.detail(pod.uid),
        )
        return explain(record)
