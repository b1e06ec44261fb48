"""How long resizes were deferred: measured by whoever ends a deferral."""

from __future__ import annotations

from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from agent.resources.plan.resize_labels import Resolution, priority_bucket
from agent.resources.plan.resize_status import DEFERRED


def end_deferral(deps: PodDeps, memory: PodMemory, resolution: Resolution) -> bool:
    """Call it before the pending resize is forgotten; whether it was a deferred one."""
    pending = memory.resize.pending
    if pending is None or pending.reason != DEFERRED:
        return False
    took = max(0.0, deps.clock.now() - pending.since)
    deps.metrics.pod_deferred_resize_duration.labels(resolution, priority_bucket(memory.desired)).observe(took)
    return True
