"""The end of a pod: what it held is released, the API server told, its records removed."""

from __future__ import annotations

import contextlib

from agent.pods.model.steps import RemoveContainer, RemoveSandbox
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.work.steps.context import Context, StepFailed
from nodelib.errors import NodewrightError
from nodelib.kube.client import ApiError


async def release(context: Context) -> None:
    """Probes, volumes, claims, cgroup, whole CPUs. Raises StepFailed."""
    memory, deps = context.memory, context.deps
    with deps.containers.deferred_removal.first():
        deps.status.probes.forget(memory.pod.uid)
        try:
            with memory.timeline.step(Activity(ActivityKind.UNMOUNT), of=Activity(ActivityKind.RELEASE)):
                await deps.holdings.volumes.release(memory.pod.uid)
                deps.holdings.warnings.drop_pod(memory.pod.uid)
            await deps.holdings.claims.release(memory.pod.uid)
            with memory.timeline.step(Activity(ActivityKind.REMOVE_CGROUP), of=Activity(ActivityKind.RELEASE)):
                await deps.holdings.cgroups.remove_pod(memory.pod.uid)
        except NodewrightError as error:
            context.warn("FailedKillPod", f"error releasing the pod's volumes and cgroup: {error}")
            raise StepFailed("FailedKillPod", error) from error
        deps.holdings.managers.release(memory.pod.uid)
        memory.prepared, memory.foundation, memory.released = None, None, True
        deps.holdings.released.fire()


async def confirm(context: Context) -> None:
    """The last status is sent, then the object may go. Raises StepFailed."""
    memory, deps = context.memory, context.deps
    with deps.containers.deferred_removal.first():
        await deps.status.reporter.flush(memory.pod.uid)
        try:
            await deps.status.api.delete(memory.pod)
        except ApiError as error:
            raise StepFailed("FailedDelete", error) from error
        memory.confirmed = True


async def remove_container(context: Context, step: RemoveContainer) -> None:
    """The record of a container that has ended, when it is its turn."""
    async with _turn(context):
        await drop_container(context, step)


async def drop_container(context: Context, step: RemoveContainer) -> None:
    """The same at once: another is to take its place."""
    deps = context.deps
    one = context.memory.seen.container(step.container_id)
    with context.acting(step.container_id):
        await deps.containers.runtime.remove_container(step.container_id)
        if one is not None and not step.keep_logs:
            await deps.containers.files.remove_container_logs(one)
        await deps.observer.removed(context.memory.pod.uid, step.container_id)


async def remove_sandbox(context: Context, step: RemoveSandbox) -> None:
    """The record of a sandbox that has been stopped, when it is its turn."""
    async with _turn(context):
        with context.acting(step.sandbox_id):
            await context.deps.containers.runtime.remove_sandbox(step.sandbox_id)
            await context.deps.observer.removed(context.memory.pod.uid, step.sandbox_id)


async def forget(context: Context) -> None:
    """Its logs go, unless the same static pod writes on in them."""
    if not context.memory.succeeded:
        await context.deps.containers.files.remove_pod_logs(context.memory.pod)


def _turn(context: Context) -> contextlib.AbstractAsyncContextManager[None]:
    """Records of a pod that is gone are removed when there is nothing more urgent."""
    gone = context.memory.confirmed and not context.memory.succeeded
    return context.deps.containers.deferred_removal.turn(context.deps.clock) if gone else contextlib.nullcontext()
