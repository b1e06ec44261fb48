"""How a running pod gets from its actuated resources (in force) to its allocated ones (granted by the node).

Follows computePodResizeAction and doPodResizeAction of kuberuntime (KEP-1287): a container whose resizePolicy says so
is restarted, the others are updated while they run, memory before CPU. The pod's cgroup grows before its containers
and shrinks after them, so that they never have more than it has. Resizing memory-backed volumes is an alpha feature
and not done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from agent.common.model.pods import ContainerState, Kind, ObservedPod, Pod, RunState
from agent.common.plan.restart import grace_seconds, is_sidecar
from agent.pods.model.facts import Facts
from agent.pods.model.steps import Kill, Resize
from agent.resources.model import CPU, MEMORY, ContainerResize, Limits, MemoryUse, ResizeCondition, ResizeState, Sizes
from agent.resources.plan import resize_status
from agent.resources.plan.actuated import sizes
from agent.resources.plan.allocation import RESIZABLE, allocation_of, same
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class ResizeActions:
    """What a resize still needs: containers to restart, and one step for all the rest."""

    restarts: tuple[Kill, ...] = ()
    step: Resize | None = None

    def __bool__(self) -> bool:
        return bool(self.restarts) or self.step is not None


@dataclass(frozen=True, slots=True)
class SetPodLimits:
    """Write the limits of the pod's cgroup."""

    limits: Limits


@dataclass(frozen=True, slots=True)
class SetContainerResources:
    """Update a running container to `sizes`."""

    container_id: str
    name: str
    sizes: Sizes


LimitUpdate = SetPodLimits | SetContainerResources
_Part = Callable[[Sizes], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Decreases:
    """Memory limits (bytes) that fall below the present ones; `pod` None: the pod's does not, `containers` by id."""

    pod: int | None = None
    containers: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return self.pod is not None or bool(self.containers)


def plan_resize(pod: Pod, seen: ObservedPod, facts: Facts, killed: frozenset[str] = frozenset()) -> ResizeActions:
    """`pod` has its allocated resources; containers whose id is in `killed` are being killed for another reason."""
    if facts.actuated is None or facts.cgroup_allocation is None:
        return ResizeActions()
    wanted = allocation_of(pod)
    if facts.actuated == wanted and facts.cgroup_allocation == wanted:
        return ResizeActions()
    restarts: list[Kill] = []
    updates: list[ContainerResize] = []
    for kind, container, latest in _running(pod, seen):
        if latest.id in killed:
            continue
        before = sizes(facts.actuated.containers.get(container["name"]), facts.actuated.whole)
        after = sizes(container.get("resources"), pod.spec.get("resources"))
        if before == after:
            continue
        if _wants_restart(kind, container, before, after):
            message = f"Container {container['name']} resize requires restart"
            hook = (container.get("lifecycle") or {}).get("preStop")
            grace = grace_seconds(pod, container)
            restarts.append(Kill(latest.id, container["name"], message, grace, hook, restart=True))
        else:
            updates.append(ContainerResize(latest.id, container["name"], before, after))
    if not updates and same(facts.cgroup_allocation, wanted):
        return ResizeActions(tuple(restarts))
    return ResizeActions(tuple(restarts), Resize(tuple(updates), wanted))


def next_state(
    state: ResizeState, pod: Pod, seen: ObservedPod, facts: Facts
) -> tuple[ResizeState, ResizeCondition | None]:
    """The state of the resize after the last steps, and the condition of a resize that has just been completed."""
    if facts.termination is not None:
        return ResizeState(), None
    if plan_resize(pod, seen, facts):
        generation = int(pod.meta.get("generation") or 0)
        return resize_status.under_way(state, generation, facts.wall), None
    if state.progress is not None and facts.cgroup_allocation is not None:
        return replace(state, progress=None), state.progress
    return state, None


def memory_updates(step: Resize, present: Limits, wanted: Limits) -> list[LimitUpdate]:
    """The updates of memory limits, in their order; none if nothing changes."""
    found: list[LimitUpdate] = []
    new = present if wanted.memory is None else replace(present, memory=wanted.memory)
    if _bound(new.memory) > _bound(present.memory):
        found.append(SetPodLimits(new))
    changed = [one for one in step.containers if _memory(one.before) != _memory(one.after)]
    for one in _decreases_first(changed, _memory):
        mixed = replace(one.before, memory_request=one.after.memory_request, memory_limit=one.after.memory_limit)
        found.append(SetContainerResources(one.container_id, one.name, mixed))
    if _bound(new.memory) < _bound(present.memory):
        found.append(SetPodLimits(new))
    return found


def cpu_updates(step: Resize, present: Limits, wanted: Limits) -> list[LimitUpdate]:
    """The same for CPU, after memory. Limits grow before requests and shrink after them.

    On v1 the kernel refuses a quota below a child's, so a pod's first quota also comes after its containers'.
    """
    found: list[LimitUpdate] = []
    shares = wanted.cpu_shares if wanted.cpu_shares is not None else present.cpu_shares
    most = present
    if wanted.cpu_quota is not None:
        most = replace(present, cpu_quota=wanted.cpu_quota, cpu_period=wanted.cpu_period)
    more, less = _quota(most) > _quota(present), _quota(most) < _quota(present)
    before, after = present.cpu_shares or 0, shares or 0
    now = present
    if more:
        now = replace(now, cpu_quota=most.cpu_quota, cpu_period=most.cpu_period)
        found.append(SetPodLimits(now))
    if after > before:
        now = replace(now, cpu_shares=shares)
        found.append(SetPodLimits(now))
    changed = [one for one in step.containers if _cpu(one.before) != _cpu(one.after)]
    found += [SetContainerResources(one.container_id, one.name, one.after) for one in _decreases_first(changed, _cpu)]
    if after < before:
        now = replace(now, cpu_shares=shares)
        found.append(SetPodLimits(now))
    if less:
        found.append(SetPodLimits(replace(now, cpu_quota=most.cpu_quota, cpu_period=most.cpu_period)))
    return found


def memory_decreases(step: Resize, present: Limits, wanted: Limits) -> Decreases:
    """The memory limits that must not be set while more than that is in use."""
    lower = wanted.memory if wanted.memory and _bound(wanted.memory) < _bound(present.memory) else None
    containers = {
        one.container_id: one.after.memory_limit
        for one in step.containers
        if one.after.memory_limit and _bound(one.after.memory_limit) < _bound(one.before.memory_limit)
    }
    return Decreases(lower, containers)


def decrease_problem(wanted: Decreases, use: MemoryUse, names: Mapping[str, str]) -> str:
    """Why the limits cannot be lowered now, in upstream's words; "" when they can. `names` by container id."""
    found: list[str] = []
    if wanted.pod is not None:
        if use.pod is None:
            found.append("missing pod memory usage")
        elif use.pod >= wanted.pod:
            found.append(f"attempting to set pod memory limit ({wanted.pod}) below current usage ({use.pod})")
    for container_id, limit in wanted.containers.items():
        used = use.containers.get(container_id)
        name = f'"{names.get(container_id, container_id)}"'
        if used is None:
            found.append(f"missing container {name} memory usage")
        elif used >= limit:
            text = f"attempting to set container {name} memory limit ({limit}) below current usage ({used})"
            found.append(text)
    if not found:
        return ""
    return "cannot decrease memory limits: " + (found[0] if len(found) == 1 else f"[{', '.join(found)}]")


def _running(pod: Pod, seen: ObservedPod) -> Iterator[tuple[Kind, Json, ContainerState]]:
    sandbox = seen.sandbox
    for kind, container in pod.containers(*RESIZABLE):
        latest = seen.latest(container["name"])
        if latest is None or sandbox is None or latest.sandbox_id != sandbox.id:
            continue
        if latest.state is RunState.RUNNING:
            yield kind, container, latest


def _wants_restart(kind: Kind, container: Json, before: Sizes, after: Sizes) -> bool:
    if kind is Kind.INIT and not is_sidecar(kind, container):
        return False  # the API takes no restart policy for them
    policies = {one.get("resourceName"): one.get("restartPolicy") for one in container.get("resizePolicy") or []}
    cpu = _cpu(before) != _cpu(after) and policies.get(CPU) == "RestartContainer"
    return cpu or (_memory(before) != _memory(after) and policies.get(MEMORY) == "RestartContainer")


def _decreases_first(changed: list[ContainerResize], part: _Part) -> list[ContainerResize]:
    def falls(one: ContainerResize) -> bool:
        limit, request = part(one.after)
        old_limit, old_request = part(one.before)
        return limit < old_limit if limit != old_limit else request < old_request

    down = [one for one in changed if falls(one)]
    return [*reversed(down), *(one for one in changed if not falls(one))]


def _memory(of: Sizes) -> tuple[int, int]:
    return of.memory_limit, of.memory_request


def _cpu(of: Sizes) -> tuple[int, int]:
    return of.cpu_limit, of.cpu_request


def _bound(memory: int | None) -> float:
    return memory or math.inf


def _quota(of: Limits) -> float:
    """As a share of one core."""
    return of.cpu_quota / of.cpu_period if of.cpu_quota and of.cpu_quota > 0 and of.cpu_period else math.inf
