"""How Prepare is walked: devices, cgroup, what drivers have to give, volumes."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from agent.common.model.pods import Pod
from agent.common.model.refusal import UNEXPECTED
from agent.containers.model import PreparedPod
from agent.pods.model.steps import Prepare
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.work.steps import resize
from agent.pods.work.steps.context import Context, StepFailed
from agent.resources.plan.allocation import allocation_of
from nodelib.errors import NodewrightError, Permanent
from nodelib.tasks import both


async def walk(context: Context, step: Prepare) -> None:
    """Raises StepFailed."""
    memory, deps = context.memory, context.deps
    sized, keep = resize.made_for(deps, memory), resize.was_cut(deps, memory)
    await _give_devices(context)
    if memory.seen.is_running:
        # It runs and has all that it needs: nobody has looked after its health while the agent was away.
        await deps.status.probes.first_round()
    async with deps.containers.takeover_gate.place() if memory.seen.is_running else contextlib.nullcontext():
        # Volumes wait for the API server, a cgroup for the kernel: neither for the other.
        volumes = _volumes(context, may_defer_volumes=step.may_defer_volumes)
        parent, found = await both(_cgroup(context, sized, keep=keep), volumes)
    if found is None:
        memory.sandbox_prepared = PreparedPod(cgroup_parent=parent)
    else:
        memory.prepared = replace(found, cgroup_parent=parent)
    memory.cgroup_allocation = allocation_of(sized)


async def _cgroup(context: Context, sized: Pod, *, keep: bool) -> str:
    """And what the pod has of drivers by its claims. The path of the cgroup, as the runtime wants it."""
    memory, deps = context.memory, context.deps
    try:
        with memory.timeline.step(Activity(ActivityKind.CGROUP), of=Activity(ActivityKind.PREPARE)):
            parent = await deps.resources.cgroups.ensure_pod(sized, keep=keep)
            memory.limits = await deps.resources.cgroups.limits(memory.pod)
    except NodewrightError as error:
        context.warn("FailedCreatePodContainer", f"unable to ensure pod container exists: {error}")
        raise StepFailed("FailedCreatePodContainer", error) from error
    try:
        await deps.resources.claims.prepare(memory.pod)
    except NodewrightError as error:
        context.warn("FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
        raise StepFailed("FailedPrepareDynamicResources", error) from error
    return parent


async def _volumes(context: Context, *, may_defer_volumes: bool) -> PreparedPod | None:
    """None: left to be filled beside the sandbox, for which the API server need not have given its tokens. A volume
    that cannot be had keeps the sandbox from being made, as upstream's PodReadyToStartContainers has it."""
    memory, deps = context.memory, context.deps
    try:
        with memory.timeline.step(Activity(ActivityKind.VOLUMES), of=Activity(ActivityKind.PREPARE)):
            services = await deps.containers.configs.services(memory.pod)
            if may_defer_volumes and await deps.resources.volumes.sources_ready(memory.pod):
                return None
            while True:
                memory.volumes_changed = False
                mounted = await deps.resources.volumes.mount(memory.pod)
                if not memory.volumes_changed:
                    return PreparedPod(volumes=mounted, services=services)
    except NodewrightError as error:
        context.warn("FailedMount", str(error))
        raise StepFailed("FailedMount", error) from error


async def _give_devices(context: Context) -> None:
    """A pod that cannot have its devices is refused, as admission would: no other node would hear of it else."""
    memory, deps = context.memory, context.deps
    try:
        await deps.resources.devices.admit(memory.pod, running=memory.seen.is_running)
    except Permanent as error:
        context.warn(UNEXPECTED, error.message)
        raise StepFailed(UNEXPECTED, error) from error
