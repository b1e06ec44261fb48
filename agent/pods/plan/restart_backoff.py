"""Back-offs of restarts: what they are kept by, and which of them the runtime's records imply."""

from __future__ import annotations

import json
from collections.abc import Mapping

from agent.common.model.labels import bounded_image
from agent.common.model.pods import ObservedPod, Pod, RunState
from agent.common.model.states import BackOff, BackOffBounds
from agent.common.plan import backoff
from nodelib.json_values import Json

SANDBOX = ""  # no container has this name


def backoff_key(container: Json) -> str:
    """The key of a container's back-off. A changed definition or a resize starts with no back-off."""
    resources = json.dumps(container.get("resources") or {}, sort_keys=True, default=str)
    return f"{container['name']}/{bounded_image(container)}/{resources}"


def implied(pod: Pod, seen: ObservedPod, ended: Mapping[str, float], bounds: BackOffBounds) -> dict[str, BackOff]:
    """The back-offs with which an agent that has just started goes on. `ended`: as in Facts.

    Containers of a sandbox that has ended imply none: they may have ended with it, or with the node.
    """
    found = {}
    for _, container in pod.containers():
        latest = seen.latest(container["name"])
        if latest is None or latest.state is not RunState.EXITED:
            continue
        sandbox = seen.sandbox_called(latest.sandbox_id)
        if sandbox is None or not sandbox.ready:
            continue
        at, ran = ended[latest.id], max(0, latest.finished_at - latest.started_at) / 1e9
        entry = backoff.derived(latest.attempt, at - ran, at, bounds)
        if entry is not None:
            found[backoff_key(container)] = entry
    return found
