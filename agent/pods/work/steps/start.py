"""The Start step: create and start a container, then run its postStart hook (kuberuntime's startContainer)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from agent.common.model.errors import CriError
from agent.common.model.pods import Kind, RunState
from agent.common.work.gate import Gate
from agent.containers.model import ContainerInputs, PreparedPod
from agent.devices.plan.devices import merged
from agent.images.plan.images import image_volumes, volume_key
from agent.pods.model.steps import RemoveContainer, Start
from agent.pods.model.timeline import Activity, ActivityKind
from agent.pods.plan.start_inputs import after_failed_hook, target_of, with_volume_images
from agent.pods.work.steps import back_offs, release
from agent.pods.work.steps.context import Context, StepFailed
from agent.pods.work.steps.sandbox import SandboxSteps
from agent.pods.work.steps.stop import StopSteps
from agent.volumes.model.volumes import MountedVolume
from agent.volumes.plan.volumes import mounted_names
from nodelib.backoff import Backoff
from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json
from nodelib.tasks import both

# containerd's words when a start is already under way (internal/cri/server/container_start.go).
_UNDER_WAY = "already in starting state"
_VOLUME_ERROR = "ImageVolumeMountFailed"  # how a runtime's answer begins (k8s.io/cri-api/pkg/errors)
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0  # seconds between two tries
_AT_ONCE = 8  # containers of a pod that are being started
_LIMIT = 60.0  # seconds; by then the earlier agent's start has ended or was cancelled


class StartSteps:
    """Starts the containers of one pod."""

    def __init__(self, context: Context, sandboxes: SandboxSteps, stops: StopSteps) -> None:
        self._context, self._sandboxes, self._stops = context, sandboxes, stops
        self._places = Gate(_AT_ONCE)  # of this pod: it may have thousands of containers, upstream starts one at a time

    async def walk(self, step: Start) -> None:
        """Raises StepFailed, or Permanent when the image, the volumes or the sandbox have gone meanwhile."""
        context, name = self._context, step.container["name"]
        back_offs.extend(context, step.container)
        hook = (step.container.get("lifecycle") or {}).get("postStart")
        if hook:
            context.memory.in_post_start.add(name)
        try:
            gate = context.deps.containers.start_gate
            async with self._places.place(), gate.place(group=context.memory.pod.namespace):
                container_id = await self._uninterrupted(step)
            if hook:
                await self._post_start(step, container_id, hook)
        finally:
            context.memory.in_post_start.discard(name)

    async def _uninterrupted(self, step: Start) -> str:
        # Interrupted between create and start, it would leave a container that never runs.
        context, containers = self._context, self._context.deps.containers
        starting = containers.ends.starting(context.memory.pod.namespace)
        with context.acting(), containers.deferred_removal.urgent(), starting:
            return await context.uninterrupted(self._create_and_run(step))

    async def _create_and_run(self, step: Start) -> str:
        context, memory, name = self._context, self._context.memory, step.container["name"]
        started = ""
        try:
            if step.replaces_id:
                await release.remove_container_now(context, RemoveContainer(step.replaces_id))
            with memory.timeline.step(Activity(ActivityKind.CREATE, name), of=Activity(ActivityKind.START, name)):
                container_id, log_path = await (self._created_before(step) if step.created_id else self._create(step))
            with memory.timeline.step(Activity(ActivityKind.RUN, name), of=Activity(ActivityKind.START, name)):
                await both(self._run(step, container_id), self._link_log(name, container_id, log_path))
            started = container_id
            self._count_image_volumes(step)
        except NodewrightError as error:
            context.own_users_failed()
            self._count_image_volumes(step, error)
            raise
        finally:
            # The next attempt needs a fresh look at the images: they may be gone, or be pulled Always.
            memory.images.pop(name, None)
            for volume in image_volumes(memory.pod, step.container):
                memory.images.pop(volume_key(volume["name"]), None)
            await context.refresh(container=started, sandbox=step.sandbox_id if started else "")
            context.deps.resources.managers.started(memory.pod.uid, name)
        return started

    def _count_image_volumes(self, step: Start, error: NodewrightError | None = None) -> None:
        """As upstream does it: by the container, which does not start without them."""
        names = [one["name"] for one in image_volumes(self._context.memory.pod, step.container)]
        mounts = sum(one.get("name") in names for one in step.container.get("volumeMounts") or []) if names else 0
        metrics = self._context.deps.metrics
        metrics.image_volumes_requested.inc(len(names))
        unmounted = error is not None and _VOLUME_ERROR in error.message
        (metrics.image_volumes_failed if unmounted else metrics.image_volumes_mounted).inc(mounts)

    async def _created_before(self, step: Start) -> tuple[str, str]:
        """The container that an earlier agent created, and its log, which may not be linked yet."""
        one = self._context.memory.seen.container(step.created_id)
        return step.created_id, one.log_path if one is not None else ""

    async def _link_log(self, name: str, container_id: str, log_path: str) -> None:
        if log_path:
            await self._context.deps.containers.files.container_started(
                self._context.memory.pod, name, container_id, log_path
            )

    async def _create(self, step: Start) -> tuple[str, str]:
        """The id of the new container, and the path of its log."""
        context, deps, pod = self._context, self._context.deps, self._context.memory.pod
        name = step.container["name"]
        config, sandbox_config = await self._configs(step)
        try:
            container_id = await deps.containers.runtime.create_container(step.sandbox_id, config, sandbox_config)
        except CriError as error:
            context.warn("Failed", f"Error: {error.message}", name)
            raise StepFailed("CreateContainerError", error) from error
        if step.kind is not Kind.EPHEMERAL:
            deps.resources.allocations.started(pod, step.container)
        context.event("Created", "Container created", name)
        return container_id, f"{sandbox_config.get('log_directory', '')}/{config.get('log_path', '')}"

    async def _configs(self, step: Start) -> tuple[Json, Json]:
        """CRI ContainerConfig, and the PodSandboxConfig of its sandbox."""
        context, memory, deps = self._context, self._context.memory, self._context.deps
        pod, container, prepared = memory.pod, step.container, memory.prepared
        name, image = container["name"], memory.images[container["name"]]
        sandbox = memory.seen.sandbox_called(step.sandbox_id)
        if prepared is None or image.facts is None or sandbox is None:
            raise Permanent("its volumes, image or sandbox are gone", obj=f"{pod.full_name}[{name}]")
        ips = context.ips(sandbox)
        try:
            given = merged(
                [await deps.resources.devices.grant(pod, container), deps.resources.claims.grant(pod, container)]
            )
            mounted = await self._mounted(container, prepared)
            volumes = with_volume_images(pod, container, mounted, memory.images)
            inputs = ContainerInputs(step.attempt, ips, image.facts, image.ref, target_of(step, memory.seen), given)
            chosen = replace(prepared, volumes=volumes, handler=sandbox.runtime_handler)
            config = await deps.containers.configs.container_config(pod, container, chosen, inputs)
            linux = config["linux"]
            linux["resources"] = await deps.resources.managers.pre_create(pod, container, linux["resources"])
            return config, await self._sandboxes.config_of(sandbox, prepared)
        except NodewrightError as error:
            context.warn("Failed", f"Error: {error.message}", name)
            raise StepFailed("CreateContainerConfigError", error) from error

    async def _mounted(self, container: Json, prepared: PreparedPod) -> Mapping[str, MountedVolume]:
        """The pod's volumes. A debug container may be the first to mount one of them."""
        if prepared.volumes.keys() >= set(mounted_names(container)):
            return prepared.volumes
        memory = self._context.memory
        found = await self._context.deps.resources.volumes.mount(memory.pod)
        memory.prepared = replace(prepared, volumes=found)
        return found

    async def _run(self, step: Start, container_id: str) -> None:
        context, name = self._context, step.container["name"]
        try:
            if step.created_id:
                await self._start_created(container_id)
            else:
                await context.deps.containers.runtime.start_container(container_id)
        except CriError as error:
            context.warn("Failed", f"Error: {error.message}", name)
            raise StepFailed("RunContainerError", error) from error
        context.event("Started", "Container started", name)

    async def _start_created(self, container_id: str) -> None:
        """Start a container that an earlier agent created. That agent's call may still be under way: wait for it.

        Raises CriError: it cannot be started, or the other call does not end.
        """
        deps, uid = self._context.deps, self._context.memory.pod.uid
        pauses, deadline = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), deps.clock.monotonic() + _LIMIT
        while True:
            try:
                await deps.containers.runtime.start_container(container_id)
                return
            except CriError as error:
                one = (await deps.observer.refresh(uid)).container(container_id)
                if one is not None and one.started_at and one.state in (RunState.RUNNING, RunState.EXITED):
                    return
                if _UNDER_WAY not in error.message or deps.clock.monotonic() > deadline:
                    raise
            await deps.clock.sleep(pauses.next())

    async def _post_start(self, step: Start, container_id: str, hook: Json) -> None:
        context, memory, name = self._context, self._context.memory, step.container["name"]
        ips = context.ips(memory.seen.sandbox)
        try:
            with memory.timeline.step(Activity(ActivityKind.POST_START, name), of=Activity(ActivityKind.START, name)):
                await context.deps.containers.hooks.run(memory.pod, step.container, container_id, hook, ips)
        except NodewrightError as error:
            context.warn("FailedPostStartHook", "PostStartHook failed", name)
            await self._stops.kill(after_failed_hook(memory.pod, step.container, container_id))
            raise StepFailed("PostStartHookError", error) from error
