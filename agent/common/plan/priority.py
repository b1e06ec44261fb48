"""The priority of a pod."""

from __future__ import annotations

from agent.common.model.pods import Pod


def priority(pod: Pod) -> int:
    return int(pod.spec.get("priority") or 0)
