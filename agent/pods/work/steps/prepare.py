"""The Prepare step: devices, cgroup, resource claims, volumes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import replace

from agent.common.model.errors import AttachLimitExceeded
from agent.common.model.pods import Pod
from agent.common.model.refusal import ATTACH_LIMIT, UNEXPECTED
from agent.containers.model import PreparedPod
from agent.pods.model.steps import Prepare
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.work.steps import resize
from agent.pods.work.steps.context import Context, StepFailed
from agent.resources.plan.allocation import allocation_of
from agent.volumes.model.volumes import MountedVolume
from nodelib.errors import NodewrightError, Permanent
from nodelib.tasks import both, cancel_and_wait


async def walk(context: Context, step: Prepare) -> None:
    """Raises StepFailed."""
    memory, deps = context.memory, context.deps
    for_cgroup, keep = resize.pod_for_cgroup(deps, memory), resize.was_interrupted(deps, memory)
    await _admit_devices(context)
    if memory.seen.is_running:
        # The agent restarted: probe running containers first, nobody did it meanwhile.
        await deps.status.probes.first_round()
    async with deps.containers.takeover_gate.place() if memory.seen.is_running else contextlib.nullcontext():
        # At once: volumes wait for the API server, the cgroup for the kernel.
        volumes = _volumes(context, may_defer_volumes=step.may_defer_volumes)
        parent, found = await both(_cgroup(context, for_cgroup, keep=keep), volumes)
    if found is None:
        memory.sandbox_prepared = PreparedPod(cgroup_parent=parent)
    else:
        memory.prepared = replace(found, cgroup_parent=parent)
    memory.cgroup_allocation = allocation_of(for_cgroup)


async def _cgroup(context: Context, pod: Pod, *, keep: bool) -> str:
    """Make the cgroup with the resources of `pod`, then prepare its claims. Returns the CRI cgroup_parent."""
    memory, deps = context.memory, context.deps
    try:
        with memory.timeline.step(Activity(ActivityKind.CGROUP), of=Activity(ActivityKind.PREPARE)):
            parent = await deps.resources.cgroups.ensure_pod(pod, keep=keep)
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
    """Mount the volumes. None: deferred to the next Prepare, since only tokens may still be missing.

    A volume with a missing source keeps the sandbox from being made, as upstream's PodReadyToStartContainers has it.
    """
    memory, deps = context.memory, context.deps
    try:
        with memory.timeline.step(Activity(ActivityKind.VOLUMES), of=Activity(ActivityKind.PREPARE)):
            if may_defer_volumes and await deps.resources.volumes.sources_ready(memory.pod):
                return None
            return await _mounted(context)
    except NodewrightError as error:
        context.warn("FailedMount", str(error))
        raise StepFailed(ATTACH_LIMIT if isinstance(error, AttachLimitExceeded) else "FailedMount", error) from error


async def _mounted(context: Context) -> PreparedPod:
    """The volumes' sources and the Services are fetched side by side; a volume's error is raised at once."""
    memory, deps = context.memory, context.deps
    services = asyncio.ensure_future(deps.containers.configs.services(memory.pod))
    try:
        while True:
            memory.volumes_changed = False
            mounted = await deps.resources.volumes.mount(memory.pod)
            if not memory.volumes_changed:
                _note_mounts(context, mounted.values())
                return PreparedPod(volumes=mounted, services=await services)
    finally:
        await cancel_and_wait(services)


def _note_mounts(context: Context, mounted: Iterable[MountedVolume]) -> None:
    """Each volume in the timeline: the step that mounts all of them goes on a little longer."""
    timeline, now = context.memory.timeline, context.deps.clock.now()
    for one in mounted:
        if one.began:
            what, of = Activity(ActivityKind.MOUNT, volume=one.name), Activity(ActivityKind.VOLUMES)
            timeline.mark(what, one.took, of=of, ago=max(0.0, now - one.began - one.took))


async def _admit_devices(context: Context) -> None:
    """A pod that cannot get its devices is rejected, as admission would do it (plan/failures.py rejection_of)."""
    memory, deps = context.memory, context.deps
    try:
        await deps.resources.devices.admit(memory.pod, running=memory.seen.is_running)
    except Permanent as error:
        context.warn(UNEXPECTED, error.message)
        raise StepFailed(UNEXPECTED, error) from error
