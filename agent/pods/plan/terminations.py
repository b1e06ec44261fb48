"""Which containers a new status of a pod shows as ended that the one before did not (kubelet_terminated_containers).

Upstream: updateStatusInternal() in pkg/kubelet/status/status_manager.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from agent.common.model.pods import Kind
from agent.pods.plan.container_status import LISTED
from nodelib.json_values import Json


def newly_ended(before: Json, after: Json) -> Iterator[tuple[Kind, str, str]]:
    """The kind of each such container, its exit code and the reason."""
    for kind, field in LISTED.items():
        known = {one["name"] for one in before.get(field) or () if _terminated(one) is not None}
        for one in after.get(field) or ():
            ended = _terminated(one)
            if ended is not None and one["name"] not in known:
                yield kind, str(ended.get("exitCode", 0)), str(ended.get("reason", ""))


def _terminated(status: Json) -> Json | None:
    found: Json | None = (status.get("state") or {}).get("terminated")
    return found
