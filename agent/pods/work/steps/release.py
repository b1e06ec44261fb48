"""The end of a pod: what it held is released, the API server told, its records removed."""

from __future__ import annotations

import contextlib

from agent.pods.model.steps import RemoveContainer, RemoveSandbox
from agent.pods.work.steps.context import Context, StepFailed
from nodelib.errors import NodewrightError
from nodelib.kube.client import ApiError


async def release(context: Context) -> None:
    """Probes, volumes, claims, cgroup, whole CPUs. Raises StepFailed."""
    memory, parts = context.memory, context.parts
    with parts.leftovers.first():
        parts.probes.forget(memory.pod.uid)
        try:
            with memory.timeline.step("unmount volumes", of="release"):
                await parts.materials.release(memory.pod.uid)
            await parts.claims.release(memory.pod.uid)
            with memory.timeline.step("remove cgroup", of="release"):
                await parts.cgroups.remove_pod(memory.pod.uid)
        except NodewrightError as error:
            context.warn("FailedKillPod", f"error releasing the pod's volumes and cgroup: {error}")
            raise StepFailed("FailedKillPod", error) from error
        parts.exclusive.release(memory.pod.uid)
        memory.materials, memory.foundation, memory.released = None, None, True
        parts.released.fire()


async def confirm(context: Context) -> None:
    """The last status is sent, then the object may go. Raises StepFailed."""
    memory, parts = context.memory, context.parts
    with parts.leftovers.first():
        await parts.reporter.flush(memory.pod.uid)
        try:
            await parts.api.delete(memory.pod)
        except ApiError as error:
            raise StepFailed("FailedDelete", error) from error
        memory.confirmed = True


async def remove_container(context: Context, step: RemoveContainer) -> None:
    """The record of a container that has ended, when it is its turn."""
    async with _turn(context):
        await drop_container(context, step)


async def drop_container(context: Context, step: RemoveContainer) -> None:
    """The same at once: another is to take its place."""
    parts = context.parts
    one = context.memory.seen.container(step.container_id)
    with context.acting(step.container_id):
        await parts.runtime.remove_container(step.container_id)
        if one is not None and not step.keep_logs:
            await parts.files.remove_container_logs(one)
        await parts.observer.removed(context.memory.pod.uid, step.container_id)


async def remove_sandbox(context: Context, step: RemoveSandbox) -> None:
    """The record of a sandbox that has been stopped, when it is its turn."""
    async with _turn(context):
        with context.acting(step.sandbox_id):
            await context.parts.runtime.remove_sandbox(step.sandbox_id)
            await context.parts.observer.removed(context.memory.pod.uid, step.sandbox_id)


async def forget(context: Context) -> None:
    """Its logs go, unless the same static pod writes on in them."""
    if not context.memory.succeeded:
        await context.parts.files.remove_pod_logs(context.memory.pod)


def _turn(context: Context) -> contextlib.AbstractAsyncContextManager[None]:
    """Records of a pod that is gone are removed when there is nothing more urgent."""
    gone = context.memory.confirmed and not context.memory.succeeded
    return context.parts.leftovers.turn(context.parts.clock) if gone else contextlib.nullcontext()
