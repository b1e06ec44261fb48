"""The stage that each pod is in, for the metrics that count pods (edge/pod_counts.py)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from agent.common.model.pods import PodStage
from agent.pods.work.memory import PodMemory


def stages(memories: Iterable[PodMemory], active: Collection[str]) -> Iterator[PodStage]:
    """`active`: UIDs of the pods that hold their resources (PodRegistry.active)."""
    for memory in memories:
        source = memory.pod.source
        yield PodStage(
            lifecycle=_lifecycle(memory),
            config="runtime_only" if source == "runtime" else "orphan" if memory.gone else "desired",
            static="unknown" if source == "runtime" else "" if source == "api" else "true",
            active=memory.pod.uid in active,
            mirrored=bool(memory.mirror_uid),
        )


def _lifecycle(memory: PodMemory) -> str:
    if memory.released:
        return "terminated"
    return "terminating" if memory.gone or memory.pod.is_deleted or memory.termination is not None else "sync"
