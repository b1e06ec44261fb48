"""What to do next for one pod: plan_pod(pod, seen, facts) -> PodPlan. Pure.

`pod` is what is wanted, `seen` what the runtime shows, `facts` what only the agent knows. The decisions are those of
computePodActions (pkg/kubelet/kuberuntime/kuberuntime_manager.go), with one difference: all steps of a plan can be done
at once, and the pod is planned afresh after them. So a plan never relies on a step that has not happened yet, and an
agent that is killed between two steps goes on from what the runtime shows.

Invariants: a container is started only in a ready sandbox, with its volumes prepared and its image present, and only
if no attempt of it runs or may run; nothing is started in a pod that terminates; init containers run in their order,
each after the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.common.model.labels import HASH, hash_in
from agent.common.model.pods import ContainerState, Kind, ObservedPod, Pod, RunState, SandboxState
from agent.common.plan import backoff
from agent.common.plan.restart import grace_seconds, is_sidecar, may_restart, should_start
from agent.pods.model.facts import Facts
from agent.pods.model.steps import (
    Kill,
    PodPlan,
    Prepare,
    RemoveContainer,
    RemoveSandbox,
    RunSandbox,
    Step,
)
from agent.pods.plan import resize, restart_all
from agent.pods.plan.container_starts import Candidate, plan_starts
from agent.pods.plan.initialization import init_actions
from agent.pods.plan.restart_backoff import SANDBOX
from agent.pods.plan.termination import (
    container_kill,
    container_kills,
    deadline,
    early_hooks,
    plan_termination,
    sandbox_stops,
)
from agent.probes.model import ProbeKind
from nodelib.json_values import Json

NO_SANDBOX = "No sandbox for pod can be found. Need to start a new one"
SANDBOX_NOT_READY = "No ready sandbox for pod can be found. Need to start a new one"
SEVERAL_SANDBOXES = "Multiple sandboxes are ready for Pod. Need to reconcile them"
OTHER_NETWORK = "Sandbox for pod has changed. Need to start a new one"
NO_ADDRESS = "Sandbox for pod has no IP address. Need to start a new one"


def plan_pod(pod: Pod, seen: ObservedPod, facts: Facts) -> PodPlan:
    """The next steps; the docstring of the module has the invariants."""
    if facts.termination is not None:
        return plan_termination(pod, seen, facts, facts.termination)
    problem = sandbox_problem(pod, seen.sandboxes)
    if problem:
        return _without_sandbox(pod, seen, facts, problem)
    if restart_all.under_way(pod, seen):
        return restart_all.plan_reset(pod, seen, facts)
    sandbox = seen.sandboxes[0]
    work = _container_actions(pod, seen, facts, sandbox)
    if work.all_ended:
        return _stop_rest(pod, seen, facts)
    kills, resizing = _resize(pod, seen, facts, work.kills)
    starts = plan_starts(pod, seen, facts, sandbox, work.starts)
    # No container starts in a cgroup that is about to be resized.
    steps: tuple[Step, ...] = (*kills, *(resizing or starts.steps), *_removals(seen))
    if not facts.prepared and _retry_due(facts):
        steps = (*steps, Prepare())
    failed = facts.resize_failure
    again = failed.retry_at if failed is not None and failed.retry_at > facts.now else None
    times = [time for time in (starts.wait_until, deadline(pod, facts.started), again) if time is not None]
    reason = kills[0].message if kills else starts.reason
    return replace(starts, steps=steps, wait_until=min(times, default=None), reason=reason)


def sandbox_problem(pod: Pod, sandboxes: tuple[SandboxState, ...]) -> str:
    """Why the pod needs a new sandbox, in upstream's words; "" if the newest one can be used."""
    if not sandboxes:
        return NO_SANDBOX
    if sum(one.ready for one in sandboxes) > 1:
        return SEVERAL_SANDBOXES
    newest = sandboxes[0]
    if not newest.ready:
        return SANDBOX_NOT_READY
    if newest.network_mode != ("NODE" if pod.host_network else "POD"):
        return OTHER_NETWORK
    if not pod.host_network and not newest.ips:
        return NO_ADDRESS
    return ""


def _without_sandbox(pod: Pod, seen: ObservedPod, facts: Facts, problem: str) -> PodPlan:
    kills = container_kills(pod, seen, facts.now, grace_seconds(pod), facts.now)
    if kills:
        return PodPlan(kills, reason=problem)
    stops = sandbox_stops(seen, facts)
    if stops:
        return PodPlan(stops, reason=problem)
    attempt = seen.sandboxes[0].attempt + 1 if seen.sandboxes else 0
    if attempt and seen.containers and not _needs_new_sandbox(pod, seen):
        return PodPlan(reason="every container has ended", terminal=True)
    if not _retry_due(facts) and facts.blocked is not None:
        return PodPlan(wait_until=facts.blocked.retry_at, reason=f"{facts.blocked.reason}: {facts.blocked.message}")
    images = _early_images(pod, seen, facts)
    if not (facts.prepared or facts.sandbox_prepared):
        steps = (Prepare(may_defer_volumes=True), *images.steps)
        return PodPlan(steps, reason="volumes and cgroup are prepared", waiting=images.waiting)
    rest: tuple[Step, ...] = () if facts.prepared else (Prepare(),)
    if not facts.network_ready and not pod.host_network:
        text = "the container runtime's network is not ready"
        return PodPlan((*rest, *images.steps), facts.now + 1, reason=text, waiting=images.waiting)
    # A pod may end its sandbox as often as it likes: with its init containers, no back-off of containers delays that.
    at = backoff.next_at(facts.backoff.get(SANDBOX)) if seen.sandboxes else 0.0
    if at > facts.now:
        return PodPlan((*rest, *images.steps), at, reason=problem, waiting=images.waiting)
    # Init containers run again in a new sandbox: their old records must not count for it.
    purge = tuple(
        RemoveContainer(one.id)
        for one in seen.containers
        if one.state is RunState.EXITED and _kind_of(pod, one.name) is Kind.INIT
    )
    sandbox = RunSandbox(attempt, replaces=bool(seen.sandboxes))
    return PodPlan((*purge, sandbox, *rest, *images.steps), reason=problem, waiting=images.waiting)


def _needs_new_sandbox(pod: Pod, seen: ObservedPod) -> bool:
    # A finished Job's pod must not get a sandbox merely because its old one is gone.
    if pod.restart_policy == "Never" and not any(may_restart(pod, one) for _, one in pod.containers(Kind.MAIN)):
        return False
    names = {one.name for one in seen.containers}
    mains = list(pod.containers(Kind.MAIN))
    if not any(container["name"] in names for _, container in mains):
        return True
    return any(should_start(pod, container, seen.latest(container["name"])) for _, container in mains)


def _early_images(pod: Pod, seen: ObservedPod, facts: Facts) -> PodPlan:
    # Pulled while the sandbox is made, so that the first start need not wait.
    first = list(pod.containers(Kind.INIT))[:1] or list(pod.containers(Kind.MAIN))
    return plan_starts(pod, seen, facts, None, first)


@dataclass(slots=True)
class _ContainerActions:
    """What the containers need. `all_ended`: no container but sidecars runs or will run again."""

    kills: list[Kill] = field(default_factory=list)
    starts: list[Candidate] = field(default_factory=list)
    all_ended: bool = False


def _container_actions(pod: Pod, seen: ObservedPod, facts: Facts, sandbox: SandboxState) -> _ContainerActions:
    init = init_actions(pod, seen, facts, sandbox.id)
    if init.failed:
        return _ContainerActions(all_ended=True)
    ephemeral = [one for one in pod.containers(Kind.EPHEMERAL) if seen.latest(one[1]["name"]) is None]
    work = _ContainerActions(list(init.kills), [*ephemeral, *((Kind.INIT, container) for container in init.starts)])
    if not init.done:
        return work
    keep_count = 0
    for _, container in pod.containers(Kind.MAIN):
        latest = seen.latest(container["name"])
        if latest is not None and latest.state is RunState.RUNNING:
            keep_count += 1
            unfit = _kill_if_changed_or_unhealthy(pod, container, latest, facts)
            work.kills += [unfit] if unfit else []
        elif should_start(pod, container, latest) or (latest is not None and latest.id in facts.restart_wanted):
            keep_count += 1
            if latest is not None and latest.state is RunState.UNKNOWN:
                message = 'Container is in "unknown" state, try killing it before restart'
                work.kills.append(container_kill(pod, container, latest, message))
            else:
                work.starts.append((Kind.MAIN, container))
    work.all_ended = keep_count == 0
    return work


def _resize(pod: Pod, seen: ObservedPod, facts: Facts, kills: list[Kill]) -> tuple[list[Kill], tuple[Step, ...]]:
    """All kills, those for a resize included, and the Resize step, which waits until those containers have ended."""
    actions = resize.plan_resize(pod, seen, facts, frozenset(kill.container_id for kill in kills))
    if actions.restarts:
        return [*kills, *actions.restarts], ()
    failed = facts.resize_failure
    if actions.step is None or (failed is not None and failed.retry_at > facts.now):
        return kills, ()
    return kills, (actions.step,)


def _kill_if_changed_or_unhealthy(pod: Pod, container: Json, latest: ContainerState, facts: Facts) -> Kill | None:
    name = container["name"]
    started_as = latest.annotations.get(HASH)
    if started_as and started_as != hash_in(pod, container):
        message = f"Container {name} definition changed, will be restarted"
        return container_kill(pod, container, latest, message, restart=True)
    state = facts.probes.get(latest.id)
    if state is None or state.live:
        return None
    probe = ProbeKind.STARTUP if container.get("startupProbe") and not state.started else ProbeKind.LIVENESS
    restart = may_restart(pod, container)
    message = f"Container {name} failed {probe.value.lower()} probe" + (", will be restarted" if restart else "")
    return container_kill(pod, container, latest, message, probe, restart=restart)


def _stop_rest(pod: Pod, seen: ObservedPod, facts: Facts) -> PodPlan:
    # All containers but sidecars have ended: stop the sidecars, then the sandbox.
    kills = container_kills(pod, seen, facts.now, grace_seconds(pod), _ended_at(pod, seen, facts))
    stops: tuple[Step, ...] = (*kills, *early_hooks(pod, seen, facts, kills)) if kills else sandbox_stops(seen, facts)
    return PodPlan(stops, reason="every container has ended", terminal=not kills)


def _ended_at(pod: Pod, seen: ObservedPod, facts: Facts) -> float:
    """When the last container but sidecars ended (steady seconds): the grace of the sidecars runs from then."""
    counted = {one["name"] for kind, one in pod.containers(Kind.INIT, Kind.MAIN) if not is_sidecar(kind, one)}
    ends = [facts.ended_at(one) for one in seen.containers if one.name in counted and one.finished_at]
    return min(facts.now, max(ends, default=facts.now))


def _removals(seen: ObservedPod) -> tuple[RemoveContainer | RemoveSandbox, ...]:
    """Records that no status needs: of each container all dead attempts but the newest two (the status shows the second
    as lastState), and replaced sandboxes that have no containers left."""
    count: dict[str, int] = {}
    gone: list[RemoveContainer | RemoveSandbox] = []
    for one in seen.containers:
        count[one.name] = count.get(one.name, 0) + 1
        never_ran = count[one.name] > 1 and one.state is RunState.CREATED
        if never_ran or (count[one.name] > 2 and one.state is RunState.EXITED):
            gone.append(RemoveContainer(one.id))
    occupied = {one.sandbox_id for one in seen.containers}
    gone += [RemoveSandbox(one.id) for one in seen.sandboxes[1:] if not one.ready and one.id not in occupied]
    return tuple(gone)


def _kind_of(pod: Pod, name: str) -> Kind | None:
    found = pod.container(name)
    return found[0] if found else None


def _retry_due(facts: Facts) -> bool:
    return facts.blocked is None or facts.blocked.retry_at <= facts.now
