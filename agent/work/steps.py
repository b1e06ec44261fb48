"""How each step of a plan is walked. Nothing is decided here: a step does its work, or raises what hindered it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from agent.errors import CriError
from agent.model.pods import ContainerState, Json, Kind, ObservedPod, Pod, RunState
from agent.plan import backoff
from agent.plan.allocation import allocation_of
from agent.plan.devices import merged
from agent.plan.ending import hastened
from agent.plan.facts import (
    Cause,
    Confirm,
    Ending,
    EnsureImage,
    Forget,
    ImagePhase,
    ImageState,
    Kill,
    Prepare,
    PreStop,
    Release,
    RemoveContainer,
    RemoveSandbox,
    Resize,
    RunSandbox,
    Start,
    Step,
    StopSandbox,
)
from agent.plan.images import image_volumes, volume_key, wanted
from agent.plan.pod import backoff_key
from agent.plan.restart import MINIMUM_GRACE
from agent.ports import Materials
from agent.work import resize_step, taken_up
from agent.work.memory import PodMemory
from agent.work.parts import Parts
from nodelib.backoff import Backoff
from nodelib.errors import NodewrightError, Permanent
from nodelib.kube.client import ApiError
from nodelib.tasks import both

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_UNEXPECTED = "UnexpectedAdmissionError"
_FIRST_STOP_PAUSE, _LONGEST_STOP_PAUSE, _STOP_LOOKS = 0.05, 0.5, 5  # seconds, seconds, looks
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds between looks at a runtime that does not answer


class StepFailed(NodewrightError):
    """A step did not succeed: `reason` is the waiting state or event reason that upstream has for it."""

    def __init__(self, reason: str, cause: NodewrightError) -> None:
        super().__init__(cause.message, obj=cause.obj, step=cause.step, action=cause.action)
        self.reason = reason


class Steps:
    """Walks the steps of one pod. `poke` asks its worker for a fresh plan."""

    def __init__(self, parts: Parts, memory: PodMemory, poke: asyncio.Event) -> None:
        self._parts, self._memory, self._poke = parts, memory, poke
        self._unbroken_work: set[asyncio.Task[Any]] = set()
        self._pulls: dict[str, int] = {}
        self._config: Json = {}  # what the newest sandbox was made from

    def abandon(self) -> None:
        """The agent stops: cut short even what a pod's ending would not."""
        for task in self._unbroken_work:
            task.cancel()

    def unbroken(self) -> frozenset[asyncio.Task[Any]]:
        """Work under way that should come to its end: a container that is being started."""
        return frozenset(self._unbroken_work)

    async def walk(self, step: Step) -> None:
        """Raises StepFailed, or another NodewrightError of whoever failed."""
        match step:
            case Prepare():
                await self._prepare()
            case EnsureImage():
                want = wanted(step.container, step.volume)
                await self._parts.images.ensure(self._memory.pod, want, step.attempt, self._image_state)
            case RunSandbox():
                with self._acting(), self._parts.leftovers.first():
                    await self._run_sandbox(step)
            case Start():
                await self._start(step)
            case Kill():
                await self._kill(step)
            case PreStop():
                await self._early_hook(step)
            case Resize():
                await self._resize(step)
            case StopSandbox():
                with self._acting(step.sandbox_id), self._parts.leftovers.first():
                    await self._parts.runtime.stop_sandbox(step.sandbox_id)
                    self._memory.stopped.add(step.sandbox_id)
                    await self._look(sandbox=step.sandbox_id)
            case RemoveContainer():
                async with self._turn():
                    await self._remove_container(step)
            case RemoveSandbox():
                async with self._turn():
                    with self._acting(step.sandbox_id):
                        await self._parts.runtime.remove_sandbox(step.sandbox_id)
                        await self._parts.observer.removed(self._memory.pod.uid, step.sandbox_id)
            case Release():
                with self._parts.leftovers.first():
                    await self._release()
            case Confirm():
                with self._parts.leftovers.first():
                    await self._confirm()
            case Forget() if not self._memory.succeeded:
                await self._parts.files.remove_pod_logs(self._memory.pod)

    async def _prepare(self) -> None:
        memory = self._memory
        sized, keep = resize_step.made_for(self._parts, memory), resize_step.was_cut(self._parts, memory)
        await self._give_devices()
        running = any(one.state is RunState.RUNNING for one in memory.seen.containers)
        async with self._parts.takeovers.place() if running else contextlib.nullcontext():
            # Volumes wait for the API server, a cgroup for the kernel: neither for the other.
            parent, found = await both(self._prepare_cgroup(sized, keep=keep), self._prepare_volumes())
        memory.materials, memory.sized = replace(found, cgroup_parent=parent), allocation_of(sized)

    async def _prepare_cgroup(self, sized: Pod, *, keep: bool) -> str:
        """And what the pod has of drivers by its claims. The path of the cgroup, as the runtime wants it."""
        pod, memory = self._memory.pod, self._memory
        try:
            with memory.timeline.step("cgroup", of="prepare"):
                parent = await self._parts.cgroups.ensure_pod(sized, keep=keep)
                memory.limits = await self._parts.cgroups.limits(pod)
        except NodewrightError as error:
            self._warn("FailedCreatePodContainer", f"unable to ensure pod container exists: {error}")
            raise StepFailed("FailedCreatePodContainer", error) from error
        try:
            await self._parts.claims.prepare(pod)
        except NodewrightError as error:
            self._warn("FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
            raise StepFailed("FailedPrepareDynamicResources", error) from error
        return parent

    async def _prepare_volumes(self) -> Materials:
        try:
            with self._memory.timeline.step("volumes", of="prepare"):
                return await self._parts.materials.prepare(self._memory.pod)
        except NodewrightError as error:
            self._warn("FailedMount", str(error))
            raise StepFailed("FailedMount", error) from error

    async def _give_devices(self) -> None:
        """A pod that cannot have its devices is refused, as admission would: no other node would hear of it else."""
        memory, parts = self._memory, self._parts
        running = any(one.state is RunState.RUNNING for one in memory.seen.containers)
        try:
            await parts.devices.admit(memory.pod, running=running)
        except Permanent as error:
            self._warn(_UNEXPECTED, error.message)
            text = f"Pod was rejected: {error.message}"
            memory.ending = hastened(memory.ending, Ending(Cause.REJECTED, parts.clock.now(), 1, _UNEXPECTED, text))
            raise StepFailed(_UNEXPECTED, error) from error

    async def _run_sandbox(self, step: RunSandbox) -> None:
        memory, pod = self._memory, self._memory.pod
        if memory.materials is None:
            raise Permanent("nothing is prepared", obj=pod.full_name, step="sandbox")
        if step.replaces:
            text = "Pod sandbox changed, it will be killed and re-created."
            self._parts.events.emit(pod.raw, "Normal", "SandboxChanged", text)
        self._parts.figures.sandbox_begun()
        made = ""
        try:
            handler = ""
            if pod.spec.get("runtimeClassName"):
                handler = await self._parts.api.runtime_handler(pod.spec["runtimeClassName"])
            self._config = await self._parts.materials.sandbox_config(pod, memory.materials, step.attempt)
            async with self._parts.sandboxes.place():
                made = await self._parts.runtime.run_sandbox(self._config, handler)
        except NodewrightError as error:
            said = f"rpc error: code = {error.code} desc = " if isinstance(error, CriError) else ""
            self._warn("FailedCreatePodSandBox", f"Failed to create pod sandbox: {said}{error.message}")
            raise StepFailed("FailedCreatePodSandBox", error) from error
        finally:
            await self._look(sandbox=made)

    async def _start(self, step: Start) -> None:
        name = step.container["name"]
        latest = self._memory.seen.latest(name)
        self._extend_backoff(step.container, latest)
        hook = (step.container.get("lifecycle") or {}).get("postStart")
        if hook:
            self._memory.in_post_start.add(name)
        try:
            # Cut short between create and start, a container would be left that nobody counts.
            with self._acting(), self._parts.leftovers.first():
                container_id = await self._unbroken(self._create_and_run(step))
            if hook:
                await self._post_start(step, container_id, hook)
        finally:
            self._memory.in_post_start.discard(name)

    async def _unbroken(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run to the end even if cancelled meanwhile; the cancellation counts afterwards."""
        task = asyncio.ensure_future(work)
        self._unbroken_work.add(task)
        task.add_done_callback(self._unbroken_work.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            await asyncio.wait({task})
            if not task.cancelled() and (error := task.exception()) is not None:
                log.info("pod %s: it ends while this failed: %s", self._memory.pod.full_name, error)
            raise

    async def _create_and_run(self, step: Start) -> str:
        started = ""
        try:
            name = step.container["name"]
            if step.instead_of:
                await self._remove_container(RemoveContainer(step.instead_of))
            with self._memory.timeline.step(f"create {name}", of=f"start {name}"):
                container_id, log_path = await (self._take_up(step) if step.made else self._create(step))
            with self._memory.timeline.step(f"run {name}", of=f"start {name}"):
                await both(self._run(step, container_id), self._link_log(name, container_id, log_path))
            started = container_id
        finally:
            # The next attempt asks for its image again: it may have been removed, or be pulled Always.
            self._memory.images.pop(step.container["name"], None)
            for volume in image_volumes(self._memory.pod, step.container):
                self._memory.images.pop(volume_key(volume["name"]), None)
            await self._look(container=started, sandbox=step.sandbox_id if started else "")
            self._parts.exclusive.started(self._memory.pod.uid, step.container["name"])
        return started

    async def _take_up(self, step: Start) -> tuple[str, str]:
        """What an earlier life of the agent created: it may have died before the log was linked."""
        one = next((one for one in self._memory.seen.containers if one.id == step.made), None)
        return step.made, one.log_path if one is not None else ""

    async def _link_log(self, name: str, container_id: str, log_path: str) -> None:
        if log_path:
            await self._parts.files.container_started(self._memory.pod, name, container_id, log_path)

    async def _create(self, step: Start) -> tuple[str, str]:
        """The new container's id, and where its log will be."""
        memory, pod = self._memory, self._memory.pod
        name, image = step.container["name"], memory.images[step.container["name"]]
        sandbox = next((one for one in memory.seen.sandboxes if one.id == step.sandbox_id), None)
        if memory.materials is None or image.facts is None or sandbox is None:
            raise Permanent("volumes, image or sandbox are not there any more", obj=f"{pod.full_name}[{name}]")
        ips = self._parts.host_ips() if pod.host_network else sandbox.ips
        try:
            given = merged(
                [await self._parts.devices.grant(pod, step.container), self._parts.claims.grant(pod, step.container)]
            )
            config = await self._parts.materials.container_config(
                pod,
                step.kind,
                step.container,
                self._with_volume_images(memory.materials, step.container),
                attempt=step.attempt,
                ips=ips,
                image=image.facts,
                image_ref=image.ref,
                target_id=_target(step, memory.seen),
                given=given,
            )
            linux = config["linux"]
            linux["resources"] = await self._parts.exclusive.confined(pod, step.container, linux["resources"])
            sandbox_config = self._config
            if (sandbox_config.get("metadata") or {}).get("attempt") != sandbox.attempt:
                sandbox_config = await self._parts.materials.sandbox_config(pod, memory.materials, sandbox.attempt)
        except NodewrightError as error:
            self._warn("Failed", f"Error: {error.message}", name)
            raise StepFailed("CreateContainerConfigError", error) from error
        try:
            container_id = await self._parts.runtime.create_container(step.sandbox_id, config, sandbox_config)
        except CriError as error:
            self._warn("Failed", f"Error: {error.message}", name)
            raise StepFailed("CreateContainerError", error) from error
        if step.kind is not Kind.EPHEMERAL:
            self._parts.allocations.started(pod, step.container)
        self._tell("Created", "Container created", name)
        return container_id, f"{sandbox_config.get('log_directory', '')}/{config.get('log_path', '')}"

    def _with_volume_images(self, materials: Materials, container: Json) -> Materials:
        """Image volumes are mounted as what was looked for or pulled, and not what a tag may mean meanwhile."""
        volumes = dict(materials.volumes)
        for volume in image_volumes(self._memory.pod, container):
            name, state = volume["name"], self._memory.images.get(volume_key(volume["name"]))
            if state is None or state.facts is None or name not in volumes:
                raise Permanent("its image is not there any more", obj=f"volume {name}", step="mount image")
            volumes[name] = replace(volumes[name], image_ref=state.ref)
        return replace(materials, volumes=volumes)

    async def _run(self, step: Start, container_id: str) -> None:
        name = step.container["name"]
        try:
            if step.made:
                await taken_up.start(self._parts, self._memory, container_id)
            else:
                await self._parts.runtime.start_container(container_id)
        except CriError as error:
            self._warn("Failed", f"Error: {error.message}", name)
            raise StepFailed("RunContainerError", error) from error
        self._tell("Started", "Container started", name)

    async def _post_start(self, step: Start, container_id: str, hook: Json) -> None:
        memory, name = self._memory, step.container["name"]
        sandbox = memory.seen.sandbox
        ips = self._parts.host_ips() if memory.pod.host_network else (sandbox.ips if sandbox else ())
        try:
            with memory.timeline.step(f"postStart {name}", of=f"start {name}"):
                await self._parts.hooks.run(memory.pod, step.container, container_id, hook, ips)
        except NodewrightError as error:
            self._warn("FailedPostStartHook", "PostStartHook failed", name)
            grace = int(memory.pod.spec.get("terminationGracePeriodSeconds") or MINIMUM_GRACE)
            pre_stop = (step.container.get("lifecycle") or {}).get("preStop")
            await self._kill(Kill(container_id, name, "FailedPostStartHook", grace, pre_stop))
            raise StepFailed("PostStartHookError", error) from error

    async def _kill(self, step: Kill) -> None:
        memory = self._memory
        hook = step.hook if step.container_id not in memory.hooked else None
        memory.hooked.add(step.container_id)
        if step.container_id not in memory.stopping:
            memory.stopping.add(step.container_id)
            self._tell("Killing", step.message, step.name)
        if step.restart:
            memory.restart_wanted.add(step.container_id)
        began = self._parts.clock.monotonic()
        try:
            async with contextlib.AsyncExitStack() as stack:
                if hook and step.grace > 0:
                    with memory.timeline.step(f"preStop {step.name}", of=f"stop {step.name}"):
                        await stack.enter_async_context(self._pre_stop(step.container_id, step.name, hook, step.grace))
                left = step.grace - int(self._parts.clock.monotonic() - began)
                stack.enter_context(self._acting(step.container_id))
                with memory.timeline.step(f"signal {step.name}", of=f"stop {step.name}"):
                    await self._parts.runtime.stop_container(step.container_id, max(left, MINIMUM_GRACE))
        except CriError as error:
            self._warn("FailedKillPod", f"error killing container {step.name}: {error.message}", step.name)
            raise StepFailed("FailedKillPod", error) from error
        finally:
            await self._unbroken(self._look(container=step.container_id))
        await self._wait_for_end(step.container_id)

    async def _wait_for_end(self, container_id: str) -> None:
        """A busy containerd calls a container stopped before it has heard of its end: planned at once, the container
        would be stopped again and again meanwhile."""
        pauses = Backoff(_FIRST_STOP_PAUSE, _LONGEST_STOP_PAUSE)
        for _ in range(_STOP_LOOKS):
            if not any(
                one.id == container_id and one.state is RunState.RUNNING for one in self._memory.seen.containers
            ):
                return
            await self._parts.clock.sleep(pauses.next())
            await self._look(container=container_id)

    async def _resize(self, step: Resize) -> None:
        try:
            await resize_step.walk(self._parts, self._memory, step)
        finally:
            # No event tells of it: the status would show the old resources.
            await self._look(afresh=True)

    async def _early_hook(self, step: PreStop) -> None:
        memory = self._memory
        memory.hooked.add(step.container_id)
        began = self._parts.clock.monotonic()
        async with self._pre_stop(step.container_id, step.name, step.hook, step.grace):
            if self._parts.clock.monotonic() - began >= step.grace:
                # Nothing is left to wait for a turn with: it ends together with those whose turn it is.
                await self._kill(Kill(step.container_id, step.name, f"Stopping container {step.name}", 0))

    @contextlib.asynccontextmanager
    async def _pre_stop(self, container_id: str, name: str, spec: Json, grace: int) -> AsyncIterator[None]:
        """Entered once the hook has ended or the grace is over; a hook that goes on ends with the body, which stops
        its container: until then it may still do what it can."""
        memory, pod = self._memory, self._memory.pod
        found = pod.container(name)
        container = found[1] if found else {"name": name}
        sandbox = memory.seen.sandbox
        ips = self._parts.host_ips() if pod.host_network else (sandbox.ips if sandbox else ())
        hook = asyncio.ensure_future(self._parts.hooks.run(pod, container, container_id, spec, ips))
        timer = asyncio.ensure_future(self._parts.clock.sleep(grace))
        try:
            await asyncio.wait({hook, timer}, return_when=asyncio.FIRST_COMPLETED)
            if not hook.done():
                log.warning("pod %s: preStop hook of %s took the whole grace", pod.full_name, name)
            elif (error := hook.exception()) is not None:
                if not isinstance(error, NodewrightError):
                    raise error
                log.warning("pod %s: preStop hook of %s: %s", pod.full_name, name, error)
                self._warn("FailedPreStopHook", "PreStopHook failed", name)
            yield
        finally:
            timer.cancel()
            hook.cancel()
            await asyncio.gather(hook, return_exceptions=True)

    async def _remove_container(self, step: RemoveContainer) -> None:
        one = next((one for one in self._memory.seen.containers if one.id == step.container_id), None)
        with self._acting(step.container_id):
            await self._parts.runtime.remove_container(step.container_id)
            if one is not None and not step.keep_logs:
                await self._parts.files.remove_container_logs(one)
            await self._parts.observer.removed(self._memory.pod.uid, step.container_id)

    async def _release(self) -> None:
        memory = self._memory
        self._parts.probes.forget(memory.pod.uid)
        self._parts.images.forget(memory.pod.uid)
        while self._pulls:
            memory.timeline.end(self._pulls.popitem()[1], "given up")
        try:
            with memory.timeline.step("unmount volumes", of="release"):
                await self._parts.materials.release(memory.pod.uid)
            await self._parts.claims.release(memory.pod.uid)
            with memory.timeline.step("remove cgroup", of="release"):
                await self._parts.cgroups.remove_pod(memory.pod.uid)
        except NodewrightError as error:
            self._warn("FailedKillPod", f"error releasing the pod's volumes and cgroup: {error}")
            raise StepFailed("FailedKillPod", error) from error
        self._parts.exclusive.release(memory.pod.uid)
        memory.materials, memory.released = None, True

    async def _confirm(self) -> None:
        memory = self._memory
        await self._parts.reporter.flush(memory.pod.uid)
        try:
            await self._parts.api.delete(memory.pod)
        except ApiError as error:
            raise StepFailed("FailedDelete", error) from error
        memory.confirmed = True

    def _image_state(self, name: str, state: ImageState) -> None:
        self._memory.images[name] = state
        if state.phase is ImagePhase.PULLING:
            self._pulls[name] = self._memory.timeline.begin(f"pull for {name}")
        elif name in self._pulls:
            failed = state.waiting if state.phase is ImagePhase.FAILED else None
            self._memory.timeline.end(self._pulls.pop(name), failed.message or failed.reason if failed else "ok")
        self._poke.set()

    def _extend_backoff(self, container: Json, latest: ContainerState | None) -> None:
        if latest is None or latest.state is not RunState.EXITED:
            return
        key = backoff_key(container)
        present = self._memory.backoff.get(key)
        now = self._parts.clock.now()
        self._memory.backoff[key] = backoff.extended(present, latest.finished_at / 1e9, now)

    def _turn(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Records of a pod that is gone are removed when there is nothing more urgent."""
        gone = self._memory.confirmed and not self._memory.succeeded
        return self._parts.leftovers.turn(self._parts.clock) if gone else contextlib.nullcontext()

    def _acting(self, target: str = "") -> contextlib.AbstractContextManager[None]:
        return self._parts.observer.acting(self._memory.pod.uid, target)

    async def _look(self, *, sandbox: str = "", container: str = "", afresh: bool = False) -> None:
        """See what has come of a step: at what it made or ended, or with neither named at the whole pod. Nothing is
        planned on a view from before it, so this goes on until it is had."""
        observer, uid, pauses = self._parts.observer, self._memory.pod.uid, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                if sandbox or container:
                    await observer.look_at(uid, sandbox=sandbox, container=container)
                else:
                    await (observer.reinspect(uid) if afresh else observer.refresh(uid))
                return
            except CriError as error:
                pause = pauses.next()
                log.warning("pod %s: %s; next look in %.1f s", self._memory.pod.full_name, error, pause)
            await self._parts.clock.sleep(pause)

    def _tell(self, reason: str, message: str, container: str = "") -> None:
        self._parts.events.emit(self._memory.pod.raw, "Normal", reason, message, container=container)

    def _warn(self, reason: str, message: str, container: str = "") -> None:
        self._parts.events.emit(self._memory.pod.raw, "Warning", reason, message, container=container)


def _target(step: Start, seen: ObservedPod) -> str:
    if step.kind is not Kind.EPHEMERAL or not step.container.get("targetContainerName"):
        return ""
    wanted = step.container["targetContainerName"]
    found = seen.latest(wanted)
    if found is None or found.state is not RunState.RUNNING:
        raise StepFailed(
            "CreateContainerConfigError",
            Permanent(
                f'unable to find target container "{wanted}"', action="It must run for its processes to be seen."
            ),
        )
    return found.id
