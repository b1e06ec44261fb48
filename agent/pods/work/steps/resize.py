"""The Resize step: check, then update by update; what is in force is saved after each."""

from __future__ import annotations

import logging

from agent.common.model.errors import CriError
from agent.common.model.pods import Pod
from agent.pods.model.steps import Resize
from agent.pods.plan import resize
from agent.pods.plan.resize import SetContainerResources, SetPodLimits
from agent.pods.work.deps import PodDeps
from agent.pods.work.memory import PodMemory
from agent.pods.work.steps.context import Context
from agent.resources.model import Limits
from agent.resources.plan import actuated
from agent.resources.plan.allocation import applied
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json

log = logging.getLogger(__name__)


async def walk(context: Context, step: Resize) -> None:
    """Raises Temporary: the pod stays partly resized, and the next try goes on from there."""
    deps, success = context.deps, "false"
    began = deps.clock.monotonic()
    try:
        await _walk(deps, context.memory, step)
        success = "true"
    finally:
        deps.metrics.pod_resize_duration.labels(success).observe((deps.clock.monotonic() - began) * 1000)
        # There is no runtime event for it: without this the status would show the old resources.
        await context.refresh(afresh=True)


async def _walk(deps: PodDeps, memory: PodMemory, step: Resize) -> None:
    pod = memory.pod
    # The allocation must survive a restart before any of it is in force.
    await deps.resources.allocations.save()
    present, wanted = await deps.resources.cgroups.limits(pod), deps.resources.cgroups.wanted(pod)
    try:
        if present is None:  # pods have no cgroups of their own: only their containers are updated
            present = wanted
        await _check(deps, pod, step, present, wanted)
        present = await _apply(deps, memory, pod, resize.memory_updates(step, present, wanted), present)
        present = await _apply(deps, memory, pod, resize.cpu_updates(step, present, wanted), present)
        deps.resources.allocations.sized(pod.uid, step.wanted.whole)
        memory.cgroup_allocation = step.wanted
    finally:
        await deps.resources.allocations.save()
        memory.limits = await deps.resources.cgroups.limits(pod)


async def _check(deps: PodDeps, pod: Pod, step: Resize, present: Limits, wanted: Limits) -> None:
    lower = resize.memory_decreases(step, present, wanted)
    if not lower:
        return
    use = await deps.resources.cgroups.memory_use(pod, lower.containers)
    problem = resize.decrease_problem(lower, use, {one.container_id: one.name for one in step.containers})
    if problem:
        hint = "Ask for more, or wait until less is in use; it is tried again."
        raise Temporary(problem, obj=pod.full_name, step="resize", action=hint)


async def _apply(
    deps: PodDeps, memory: PodMemory, pod: Pod, updates: list[resize.LimitUpdate], present: Limits
) -> Limits:
    for update in updates:
        try:
            match update:
                case SetPodLimits(limits):
                    await _set_pod(deps, memory, pod, limits, present)
                    present = limits
                case SetContainerResources():
                    await _set_container(deps, pod, update)
                    await deps.resources.allocations.save()
        except NodewrightError as error:
            what = f'container "{update.name}"' if isinstance(update, SetContainerResources) else "the pod's cgroup"
            raise Temporary(f"failed to resize {what}: {error}", obj=pod.full_name, step="resize") from error
    return present


async def _set_pod(deps: PodDeps, memory: PodMemory, pod: Pod, limits: Limits, present: Limits) -> None:
    sandbox = memory.seen.sandbox
    # The runtime first: it (or one of its plugins) may refuse.
    if sandbox is not None:
        async with deps.containers.update_gate.place(group=pod.namespace):
            await deps.containers.runtime.update_sandbox(sandbox.id, {}, _linux(limits))
    try:
        await deps.resources.cgroups.set_limits(pod, limits)
    except NodewrightError:
        if sandbox is not None:
            await _revert_sandbox(deps, sandbox.id, pod, present)
        raise


async def _revert_sandbox(deps: PodDeps, sandbox_id: str, pod: Pod, present: Limits) -> None:
    try:
        await deps.containers.runtime.update_sandbox(sandbox_id, {}, _linux(present))
    except CriError as error:
        log.warning("pod %s: the runtime keeps the limits of a resize that failed: %s", pod.full_name, error)


async def _set_container(deps: PodDeps, pod: Pod, update: SetContainerResources) -> None:
    found = pod.container(update.name)
    if found is None:
        return
    stated = found[1].get("resources")
    given = {**found[1], "resources": actuated.resources_of(update.sizes, stated)}
    resources = deps.resources.managers.unthrottled(pod, given, deps.containers.configs.container_resources(pod, given))
    async with deps.containers.update_gate.place(group=pod.namespace):
        await deps.containers.runtime.update_resources(update.container_id, resources)
    deps.resources.allocations.updated(pod.uid, update.name, update.sizes, stated)


def _linux(limits: Limits) -> Json:
    """CRI LinuxContainerResources."""
    found = {
        "cpu_shares": limits.cpu_shares,
        "cpu_quota": limits.cpu_quota,
        "cpu_period": limits.cpu_period,
        "memory_limit_in_bytes": limits.memory,
    }
    return {name: amount for name, amount in found.items() if amount is not None}


def pod_for_cgroup(deps: PodDeps, memory: PodMemory) -> Pod:
    """The pod with the resources that Prepare gives its cgroup: those in force, never ahead of its containers."""
    return (
        deps.resources.allocations.in_force(memory.pod)
        if memory.cgroup_allocation is None
        else applied(memory.pod, memory.cgroup_allocation)
    )


def was_interrupted(deps: PodDeps, memory: PodMemory) -> bool:
    """Whether an earlier agent was killed during a resize of the pod.

    Then the pod's cgroup and its containers may have more than the checkpoint says, and v1 refuses a cgroup less than
    its children have: Prepare leaves the cgroup as it is, and Resize goes on from there.
    """
    return memory.cgroup_allocation is None and deps.resources.allocations.in_force(memory.pod) is not memory.pod
