"""Which init containers and sidecars to start or kill next.

Follows computeInitContainerActions (pkg/kubelet/kuberuntime/kuberuntime_container.go): the list is read from its end,
because the records of early init containers may be gone from the runtime while a later one shows that they have
succeeded. Only containers of the present sandbox count.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.common.model.labels import HASH, hash_in
from agent.common.model.pods import ContainerState, Kind, ObservedPod, Pod, RunState
from agent.common.plan.restart import is_sidecar, may_restart, restarts
from agent.pods.model.facts import Facts
from agent.pods.model.steps import Kill
from agent.pods.plan.termination import container_kill
from agent.probes.model import ProbeKind
from nodelib.json_values import Json

_UNKNOWN = 'Init container is in "unknown" state, try killing it before restart'


@dataclass(slots=True)
class InitActions:
    """`done`: main containers may start. `failed`: the pod can never be initialized."""

    kills: list[Kill] = field(default_factory=list)
    starts: list[Json] = field(default_factory=list)
    done: bool = False
    failed: bool = False


def init_actions(pod: Pod, seen: ObservedPod, facts: Facts, sandbox_id: str) -> InitActions:
    """What to start and kill among the init containers of this sandbox."""
    listed = [container for _, container in pod.containers(Kind.INIT)]
    if not listed:
        return InitActions(done=True)
    found = InitActions(done=main_started(pod, seen, sandbox_id))
    passed = found.done  # a later container has started: all before it were initialized
    for index in range(len(listed) - 1, -1, -1):
        container = listed[index]
        sidecar = is_sidecar(Kind.INIT, container)
        latest = _active(seen, container["name"], sandbox_id)
        if latest is None:
            if passed and sidecar:
                found.starts.insert(0, container)
            continue
        if passed and not sidecar:
            continue
        following = listed[index + 1] if index + 1 < len(listed) else None
        if sidecar:
            _sidecar(pod, container, latest, following, passed, facts, found)
        else:
            _ordinary(pod, container, latest, following, found)
        if found.failed:
            found.starts.clear()
            found.done = False
            return found
        passed = True
    if not passed:
        found.starts.insert(0, listed[0])
    return found


def main_started(pod: Pod, seen: ObservedPod, sandbox_id: str) -> bool:
    """Whether a main container of this sandbox has run: then all init containers had succeeded."""
    mains = {container["name"] for _, container in pod.containers(Kind.MAIN)}
    return any(
        one.name in mains and one.sandbox_id == sandbox_id and one.state in (RunState.RUNNING, RunState.EXITED)
        for one in seen.containers
    )


def _ordinary(pod: Pod, container: Json, latest: ContainerState, following: Json | None, found: InitActions) -> None:
    if latest.state is RunState.CREATED:
        found.starts.insert(0, container)
    elif latest.state is RunState.EXITED and latest.exit_code == 0:
        _succeeded(following, found)
    elif latest.state is RunState.EXITED:
        if restarts(pod, container, latest.exit_code):
            found.starts.insert(0, container)
        else:
            found.failed = True
    elif latest.state is RunState.UNKNOWN:
        if not may_restart(pod, container):
            found.failed = True
            return
        found.kills.append(container_kill(pod, container, latest, _UNKNOWN, restart=True))


def _sidecar(
    pod: Pod,
    container: Json,
    latest: ContainerState,
    following: Json | None,
    passed: bool,
    facts: Facts,
    found: InitActions,
) -> None:
    if latest.state in (RunState.CREATED, RunState.EXITED):
        found.starts.insert(0, container)
        return
    name = container["name"]
    if latest.state is RunState.UNKNOWN:
        found.kills.append(container_kill(pod, container, latest, _UNKNOWN, restart=True))
        return
    state = facts.probes.get(latest.id)
    if container.get("startupProbe") and (state is None or not state.started):
        if state is not None and not state.live:
            message = f"Init container {name} failed startup probe"
            found.kills.append(container_kill(pod, container, latest, message, ProbeKind.STARTUP, restart=True))
        return
    if following is None:
        found.done = True
    elif not passed:
        found.starts.insert(0, following)
    known = latest.annotations.get(HASH)
    if known and known != hash_in(pod, container):
        found.kills.append(
            container_kill(pod, container, latest, f"Init container {name} definition changed", restart=True)
        )
    elif state is not None and not state.live:
        message = f"Init container {name} failed liveness probe"
        found.kills.append(container_kill(pod, container, latest, message, ProbeKind.LIVENESS, restart=True))


def _succeeded(following: Json | None, found: InitActions) -> None:
    if following is None:
        found.done = True
    else:
        found.starts.insert(0, following)


def _active(seen: ObservedPod, name: str, sandbox_id: str) -> ContainerState | None:
    return next((one for one in seen.attempts(name) if one.sandbox_id == sandbox_id), None)
