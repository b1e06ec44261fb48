"""The phase of a pod from the states of its containers (getPhase of pkg/kubelet/kubelet_pods.go)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agent.common.model.pods import Kind, Pod
from agent.common.plan.restart import is_sidecar, restarts
from agent.pods.plan.restart_all import was_reset
from nodelib.json_values import Json


def pod_phase(
    pod: Pod, statuses: Mapping[str, Json], *, terminal: bool, main_ran: bool, restarting: Collection[str] = ()
) -> str:
    """`statuses` by container name. `terminal`: nothing runs or will run; `main_ran`: a main container has run in the
    present sandbox; `restarting`: names of containers that the node has stopped to start them again."""
    pending, failed = _ordinary_init(pod, statuses)
    if failed:
        return "Failed"
    running, waiting, unknown, not_started = _sidecars(pod, statuses)
    stopped = succeeded = final = 0
    for _, container in pod.containers(Kind.MAIN):
        status = statuses.get(container["name"])
        ended = _ended(status)
        state = (status or {}).get("state") or {}
        if status is None:
            unknown += 1
        elif "running" in state:
            running += 1
        elif ended is not None:
            stopped += 1
            wanted = restarts(pod, container, ended) or container["name"] in restarting
            final += not (wanted or _waits_after_reset(status))
            succeeded += "terminated" in state and ended == 0
        else:
            waiting += 1
    if pending or (not_started and not main_ran) or waiting or unknown:
        return "Pending"
    if running:
        return "Running"
    if not stopped:
        return "Pending"
    if stopped != final and not terminal:
        return "Running"
    return "Succeeded" if stopped == succeeded else "Failed"


def _ordinary_init(pod: Pod, statuses: Mapping[str, Json]) -> tuple[int, int]:
    """How many init containers have yet to succeed, and how many have failed for good."""
    pending = failed = 0
    for kind, container in pod.containers(Kind.INIT):
        if is_sidecar(kind, container):
            continue
        status = statuses.get(container["name"])
        ended = _ended(status)
        if ended is None:
            pending += 1
        elif ended != 0 and not restarts(pod, container, ended) and not _waits_after_reset(status):
            failed += 1
    return pending, failed


def _sidecars(pod: Pod, statuses: Mapping[str, Json]) -> tuple[int, int, int, int]:
    """How many sidecars run, wait, have no status, and have not passed their startup probe."""
    running = waiting = unknown = not_started = 0
    for kind, container in pod.containers(Kind.INIT):
        if not is_sidecar(kind, container):
            continue
        status = statuses.get(container["name"])
        if status is None:
            unknown += 1
        elif "running" in status["state"]:
            running += 1
            not_started += not status.get("started")
        elif _ended(status) is None:
            waiting += 1
            not_started += 1
    return running, waiting, unknown, not_started


def _waits_after_reset(status: Json | None) -> bool:
    return was_reset(status) and "waiting" in (status or {}).get("state", {})


def _ended(status: Json | None) -> int | None:
    """The exit code of a container that has ended, or that has ended and waits for its next start."""
    if status is None:
        return None
    state = status.get("state") or {}
    if "terminated" in state:
        return int(state["terminated"].get("exitCode", 0))
    if "waiting" in state and "terminated" in (status.get("lastState") or {}):
        return int(status["lastState"]["terminated"].get("exitCode", 0))
    return None
