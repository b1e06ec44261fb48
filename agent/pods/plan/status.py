"""The PodStatus of a pod, computed whole: pod_status(pod, seen, inputs). Pure.

Follows generateAPIPodStatus (pkg/kubelet/kubelet_pods.go) and the status manager's mergePodStatus and TerminatePod:
phases only go forward, a terminal phase is reported only when no container runs any more, and conditions that others
wrote stay theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.common.model.pods import Kind, ObservedPod, Pod, RunState
from agent.common.model.states import Waiting
from agent.common.plan.demand import computed_qos, pod_requests
from agent.pods.model.facts import Facts
from agent.pods.model.steps import PodPlan, Start
from agent.pods.plan import conditions, restart_all
from agent.pods.plan.container_status import LISTED, container_statuses, show_as_waiting
from agent.pods.plan.initialization import main_started
from agent.pods.plan.phase import pod_phase
from agent.pods.plan.pod import sandbox_problem
from agent.resources.model import Limits, ResizeState
from agent.resources.plan import resize_status
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339

TERMINAL = ("Succeeded", "Failed")
_LOST = "The container could not be located when the pod was terminated"


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """What a status is computed from besides the pod and the runtime's view.

    `plan`: the newest; `previous`: the status computed last; `waiting`: why containers wait, by name; `limits`: of the
    pod's cgroup; `devices`: allocatedResourcesStatus by container name; `in_post_start`: names of containers whose
    postStart hook has not ended; `starting`: whether a container is being started, or is in its postStart hook.
    """

    facts: Facts
    plan: PodPlan = field(default_factory=PodPlan)
    host_ips: tuple[str, ...] = ()
    previous: Json = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    resize: ResizeState = field(default_factory=ResizeState)
    limits: Limits | None = None
    devices: Mapping[str, list[Json]] = field(default_factory=dict)
    in_post_start: frozenset[str] = frozenset()


def pod_status(pod: Pod, seen: ObservedPod, given: StatusInputs) -> Json:
    """The whole status; plan/status_patch.py makes a patch of what differs in the API."""
    alive = _is_alive(seen, given.plan)
    seen = _hide_in_post_start(seen, given.in_post_start)
    before = given.previous or pod.status
    status: Json = {"qosClass": before.get("qosClass") or computed_qos(pod).value}
    for kind, listed in LISTED.items():
        found = container_statuses(pod, kind, seen, before, given.waiting, given.facts.probes, given.facts.actuated)
        for one in found:
            if kind is Kind.MAIN and given.devices.get(one["name"]):
                one["allocatedResourcesStatus"] = given.devices[one["name"]]
        if found:
            status[listed] = found
    restarting = _restarting(seen, given)
    show_as_waiting(pod, [one for one in status.get(LISTED[Kind.MAIN]) or [] if one["name"] in restarting])
    if given.facts.termination is None and restart_all.under_way(pod, seen):
        restart_all.show_restarting([one for kind in (Kind.INIT, Kind.MAIN) for one in status.get(LISTED[kind]) or []])
    if given.plan.finished:
        _terminate_unknown(pod, status)
    _set_phase(pod, seen, given, before, status, restarting, alive=alive)
    _set_conditions(pod, seen, given, before, status)
    _set_addresses(pod, seen, given, before, status)
    status["startTime"] = before.get("startTime") or pod.status.get("startTime") or format_rfc3339(given.facts.wall)
    if pod.meta.get("generation") is not None:
        status["observedGeneration"] = max(pod.meta["generation"], before.get("observedGeneration") or 0)
    requests = pod_requests(pod)
    if requests:
        shown = {name: resize_status.shown(name, amount) for name, amount in sorted(requests.items())}
        status["allocatedResources"] = shown
    resources = resize_status.pod_resources(pod, status["phase"], given.limits)
    if resources:
        status["resources"] = resources
    return status


def _is_alive(seen: ObservedPod, plan: PodPlan) -> bool:
    """Whether a process of the pod runs, or may do so once what is being started has been started.

    Policies, quotas and the scheduler leave out a pod that has ended. One that says so too early is out of all of them,
    for as long as its grace, which whoever makes it chooses.
    """
    runs = any(one.state in (RunState.RUNNING, RunState.UNKNOWN) for one in seen.containers)
    return runs or any(isinstance(step, Start) for step in plan.steps)


def _hide_in_post_start(seen: ObservedPod, names: frozenset[str]) -> ObservedPod:
    """Show these containers as not yet running: the API documents that a postStart hook ends before that."""
    if not names:
        return seen
    shown = (
        replace(one, state=RunState.CREATED) if one.name in names and one.state is RunState.RUNNING else one
        for one in seen.containers
    )
    return replace(seen, containers=tuple(shown))


def status_by_name(status: Json) -> dict[str, Json]:
    """The statuses of init and main containers by name."""
    return {one["name"]: one for kind in (Kind.INIT, Kind.MAIN) for one in status.get(LISTED[kind]) or []}


def _restarting(seen: ObservedPod, given: StatusInputs) -> frozenset[str]:
    """Names of containers that the node has stopped to start them again (a failed probe, a changed image), and of those
    whose next attempt is created but not started: their last exit code says nothing about the pod."""
    if given.facts.termination is not None:
        return frozenset()
    newest = {one.name: one for one in reversed(seen.containers)}
    return frozenset(
        name
        for name, one in newest.items()
        if one.state is RunState.CREATED or (one.id in given.facts.restart_wanted and one.state is RunState.EXITED)
    )


def _set_phase(
    pod: Pod,
    seen: ObservedPod,
    given: StatusInputs,
    before: Json,
    status: Json,
    restarting: frozenset[str],
    *,
    alive: bool,
) -> None:
    sandbox = seen.sandbox.id if seen.sandbox else ""
    termination = given.facts.termination
    terminal = termination is not None and (given.plan.terminal or termination.fails)
    ran = main_started(pod, seen, sandbox)
    phase = pod_phase(pod, status_by_name(status), terminal=terminal, main_ran=ran, restarting=restarting)
    reason = message = ""
    if termination is not None and termination.fails_as(phase):
        phase, reason, message = "Failed", termination.reason, termination.message
    elif given.plan.finished and phase not in TERMINAL:
        phase = "Failed"
    known = pod.status.get("phase")
    final = next((one for one in (known, before.get("phase")) if one in TERMINAL), None)
    if final is not None and (phase not in TERMINAL or known in TERMINAL):
        phase = final
    if phase in TERMINAL and alive and final is None:
        phase, reason, message = before.get("phase") or "Running", "", ""
    if phase == (before.get("phase") or known) and not reason:
        reason = before.get("reason") or pod.status.get("reason") or ""
        message = before.get("message") or pod.status.get("message") or ""
    status["phase"] = phase
    if reason:
        status["reason"] = reason
    if message:
        status["message"] = message


def _set_conditions(pod: Pod, seen: ObservedPod, given: StatusInputs, before: Json, status: Json) -> None:
    others = [one for one in pod.status.get("conditions") or [] if one.get("type") not in conditions.OWNED]
    named, phase = status_by_name(status), status["phase"]
    containers = conditions.containers_ready(pod, named, phase)
    owned = [
        conditions.ready_to_start(sandbox_problem(pod, seen.sandboxes)),
        conditions.initialized(pod, named, phase, before),
        conditions.ready(pod, containers, others),
        containers,
        conditions.scheduled(),
    ]
    if restart_all.has_rule(pod):
        owned.append(restart_all.condition(given.facts.termination is None and restart_all.under_way(pod, seen)))
    reported = (before.get("conditions") or []) + (pod.status.get("conditions") or [])
    newest = list({one.get("type"): one for one in reversed(reported)}.values())
    now = format_rfc3339(given.facts.wall)
    if given.facts.termination is not None and given.facts.termination.disrupted and phase in TERMINAL:
        mark = conditions.with_times(
            [conditions.disrupted(given.facts.termination.message)], newest, now, pod.meta.get("generation")
        )
        others = [*(one for one in others if one.get("type") != conditions.DISRUPTION_TARGET), *mark]
    own = conditions.with_times(owned, newest, now, pod.meta.get("generation"))
    resizes = [] if phase in TERMINAL else resize_status.conditions(given.resize)
    status["conditions"] = [*others, *resizes, *own]


def _set_addresses(pod: Pod, seen: ObservedPod, given: StatusInputs, before: Json, status: Json) -> None:
    if given.host_ips:
        status["hostIP"] = given.host_ips[0]
        status["hostIPs"] = [{"ip": ip} for ip in given.host_ips[:2]]
    ips: tuple[str, ...] = ()
    if pod.host_network:
        known = tuple(one["ip"] for one in before.get("podIPs") or [])
        ips = known or given.host_ips[:2]
    elif seen.sandbox is not None and seen.sandbox.ready:
        ips = seen.sandbox.ips
    if not ips and (given.facts.termination is not None or status["phase"] in TERMINAL):
        # A pod keeps showing its last address while it terminates, as upstream's does.
        ips = tuple(one["ip"] for one in before.get("podIPs") or [])
    if ips:
        status["podIP"] = ips[0]
        status["podIPs"] = [{"ip": ip} for ip in ips]


def _terminate_unknown(pod: Pod, status: Json) -> None:
    """Give every container that may have run a terminated state: the status is final, nothing can be added later."""
    ended = {"terminated": {"exitCode": 137, "reason": "ContainerStatusUnknown", "message": _LOST}}
    times: Json = {"startedAt": None, "finishedAt": None}
    lost = {"terminated": {**ended["terminated"], **times}}
    if _was_initialized(pod, status):
        for one in status.get(LISTED[Kind.MAIN]) or []:
            if "terminated" not in one["state"]:
                one.update(state=lost, ready=False, started=False)
    inits = status.get(LISTED[Kind.INIT]) or []
    tried = [
        index
        for index, one in enumerate(inits)
        if "waiting" not in one["state"] or "terminated" in (one.get("lastState") or {})
    ]
    for one in inits[: max(tried, default=0) + 1]:
        if "terminated" not in one["state"]:
            one.update(state=lost, ready=False, started=False)


def _was_initialized(pod: Pod, status: Json) -> bool:
    inits = list(pod.containers(Kind.INIT))
    if not inits:
        return True
    for one in status.get(LISTED[Kind.MAIN]) or []:
        if "terminated" in (one.get("lastState") or {}) or "waiting" not in one["state"]:
            return True
    last = next((one for one in status.get(LISTED[Kind.INIT]) or [] if one["name"] == inits[-1][1]["name"]), None)
    if last is None:
        return False
    states = (last["state"], last.get("lastState") or {})
    return bool(last.get("started")) or any(one.get("terminated", {}).get("exitCode") == 0 for one in states)
