"""The last steps of a pod: release what it held, delete its object, remove its records and logs."""

from __future__ import annotations

import contextlib

from agent.pods.model.steps import RemoveContainer, RemoveSandbox
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.work.steps import back_offs
from agent.pods.work.steps.context import Context, StepFailed
from nodelib.errors import NodewrightError
from nodelib.kube.client import ApiError


async def release(context: Context) -> None:
    """Stop probes; release volumes, claims, cgroup, exclusive CPUs and memory, user IDs. Raises StepFailed.

    Each is some threads' work, also of a pod that the node has rejected, as an earlier agent may have begun it:
    thousands of them must not have all threads, for which the starts of others wait in line.
    """
    context.deps.status.probes.remove(context.memory.pod.uid)
    async with context.turn_to_release():
        await _release(context)


async def _release(context: Context) -> None:
    memory, deps = context.memory, context.deps
    with deps.containers.deferred_removal.urgent():
        try:
            with memory.timeline.step(Activity(ActivityKind.UNMOUNT), of=Activity(ActivityKind.RELEASE)):
                await deps.resources.volumes.release(memory.pod.uid)
                deps.resources.warnings.drop_pod(memory.pod.uid)
            await deps.resources.claims.release(memory.pod.uid)
            with memory.timeline.step(Activity(ActivityKind.REMOVE_CGROUP), of=Activity(ActivityKind.RELEASE)):
                await deps.resources.cgroups.remove_pod(memory.pod.uid)
        except NodewrightError as error:
            context.warn("FailedKillPod", f"error releasing the pod's volumes and cgroup: {error}")
            raise StepFailed("FailedKillPod", error) from error
        deps.resources.managers.release(memory.pod.uid)
        await deps.resources.user_namespaces.release(memory.pod.uid)
        memory.prepared, memory.sandbox_prepared, memory.released = None, None, True
        deps.resources.released.fire()


async def confirm(context: Context) -> None:
    """Send the last status, then delete the object. Raises StepFailed."""
    memory, deps = context.memory, context.deps
    with deps.containers.deferred_removal.urgent():
        await deps.status.manager.flush(memory.pod.uid)
        try:
            await deps.status.api.delete(memory.pod)
        except ApiError as error:
            raise StepFailed("FailedDelete", error) from error
        memory.confirmed = True


async def remove_container(context: Context, step: RemoveContainer) -> None:
    """Remove an ended container from the runtime, once nothing urgent goes on."""
    if step.restarts:
        back_offs.extend_by_id(context, step.container_id)
    async with _turn(context):
        await remove_container_now(context, step)


async def remove_container_now(context: Context, step: RemoveContainer) -> None:
    """Remove an ended container without waiting: a new one takes its place."""
    deps = context.deps
    one = context.memory.seen.container(step.container_id)
    with context.acting(step.container_id):
        await deps.containers.runtime.remove_container(step.container_id)
        if one is not None and not step.keep_logs:
            await deps.containers.files.remove_container_logs(one)
        await deps.observer.removed(context.memory.pod.uid, step.container_id)


async def remove_sandbox(context: Context, step: RemoveSandbox) -> None:
    """Remove a stopped sandbox from the runtime, once nothing urgent goes on."""
    async with _turn(context):
        with context.acting(step.sandbox_id):
            await context.deps.containers.runtime.remove_sandbox(step.sandbox_id)
            await context.deps.observer.removed(context.memory.pod.uid, step.sandbox_id)


async def remove_logs(context: Context) -> None:
    """Remove the pod's logs, unless the same static pod goes on writing them."""
    if not context.memory.has_successor:
        async with context.turn_to_release():
            await context.deps.containers.files.remove_pod_logs(context.memory.pod)


def _turn(context: Context) -> contextlib.AbstractAsyncContextManager[None]:
    """Wait for a quiet moment if the pod is dead. A living pod's records go at once: its next start needs the place."""
    gone = context.memory.confirmed and not context.memory.has_successor
    return context.deps.containers.deferred_removal.turn(context.deps.clock) if gone else contextlib.nullcontext()
