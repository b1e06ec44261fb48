"""What the container runtime says of itself, what a silent one counts as, and which of its events are news."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from agent.common.model.pods import ObservedPod, RunState
from agent.runtime.model import RuntimeEvent, RuntimeFacts, RuntimeHandler
from nodelib.json_values import Json
from nodelib.text import one_line

_MOST_TEXT = 1024  # bytes
DOWN_AFTER = 30.0  # seconds without an answer; upstream: maxWaitForContainerRuntime


def runtime_facts(status: Json, version: Json) -> RuntimeFacts:
    """What CRI StatusResponse and VersionResponse (proto field names) say."""
    conditions = {entry.get("type"): entry for entry in (status.get("status") or {}).get("conditions") or []}
    problems = []
    for kind, words in (
        ("RuntimeReady", "container runtime not ready"),
        ("NetworkReady", "container runtime network not ready"),
    ):
        found = conditions.get(kind)
        if found is None:
            problems.append(f"{words}: the runtime reports no {kind} condition")
        elif not found.get("status"):
            # It goes into the Node, and may be what a CNI plugin printed.
            reason, message = (one_line(str(found.get(name, "")), _MOST_TEXT) for name in ("reason", "message"))
            problems.append(f"{words}: {kind}=false reason:{reason} message:{message}")
    features = status.get("features")
    return RuntimeFacts(
        name=str(version.get("runtime_name") or "unknown"),
        version=str(version.get("runtime_version") or "Unknown").removeprefix("v"),
        handlers=tuple(sorted((_handler(entry) for entry in status.get("runtime_handlers") or []), key=_handler_name)),
        supplemental_groups_policy=None if features is None else bool(features.get("supplemental_groups_policy")),
        problems=tuple(problems),
        network_ready=bool(conditions.get("NetworkReady", {}).get("status")),
    )


def runtime_silent(known: RuntimeFacts, silence: float | None, error: str) -> RuntimeFacts:
    """What to assume of a runtime that did not answer; `silence`: seconds since it last did, None: it never has."""
    if silence is not None and silence < DOWN_AFTER:
        return known
    words = "container runtime is down" if silence is not None else RuntimeFacts().problems[0]
    return RuntimeFacts(known.name, known.version, problems=(f"{words}: {error}",))


def _handler(entry: Mapping[str, Any]) -> RuntimeHandler:
    features = entry.get("features") or {}
    return RuntimeHandler(
        name=str(entry.get("name", "")),
        recursive_read_only_mounts=bool(features.get("recursive_read_only_mounts")),
        user_namespaces=bool(features.get("user_namespaces")),
    )


def _handler_name(handler: RuntimeHandler) -> str:
    return handler.name


def is_known(event: RuntimeEvent, view: ObservedPod, acting: Collection[str]) -> bool:
    """Whether the event adds nothing to what was seen of its pod.

    `acting`: the containers and sandboxes ("": another one) that the pod's own steps act on now. They look at what they
    did themselves, so their events say nothing new, except that another container stopped.
    """
    if acting and (event.type != "CONTAINER_STOPPED_EVENT" or event.container_id in acting):
        return True
    one, sandbox = view.container(event.container_id), view.sandbox_called(event.container_id)
    match event.type:
        case "CONTAINER_CREATED_EVENT":
            return one is not None or sandbox is not None
        case "CONTAINER_STARTED_EVENT":
            return (one is not None and one.state is not RunState.CREATED) or (sandbox is not None and sandbox.ready)
        case "CONTAINER_STOPPED_EVENT":
            return (one is not None and one.state is RunState.EXITED) or (sandbox is not None and not sandbox.ready)
    return event.type == "CONTAINER_DELETED_EVENT" and one is None and sandbox is None
