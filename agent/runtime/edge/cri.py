"""The container runtime over CRI v1: one gRPC channel, both services.

Every failed call raises a CriError; nothing above knows gRPC. The time limits are made of runtimeRequestTimeout as in
upstream's remote_runtime.go and remote_image.go. A pull has none: its caller decides when to give up
(pkg/kubelet/kuberuntime).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
import grpc.aio
from cri_api.v1 import api_pb2, api_pb2_grpc

from agent.common.model.errors import CriError
from agent.common.model.pods import ContainerState, ExecResult, ImageFacts, SandboxState
from agent.runtime.edge import convert, lists
from agent.runtime.edge.calls import COMMAND_OPTIONS, OPTIONS, Calls, Operation
from agent.runtime.edge.starts import KeptStarts
from agent.runtime.model import CallLimits, RuntimeEvent
from nodelib.json_values import Json
from nodelib.plugin_apis.plain import to_plain

# The generated stubs ask for message objects where the classes also take plain dicts.
pb: Any = api_pb2

_EXEC_SLACK = 10.0  # seconds; the runtime enforces the caller's limit itself; this is only for a runtime that does not
_LONGEST_GRACE = 10**9  # seconds; a call with a deadline in 292 years or more is out of time before it is sent


class Cri:
    """RuntimeService and ImageService (runtime/model.py). Create it inside the running loop; end it with close().

    `images`: the endpoint of the ImageService where it is another one. `operation(kind)` is entered around each call,
    for metrics. `traced` makes a channel whose calls are spans of one (traced_calls.py).
    """

    def __init__(
        self,
        endpoint: str,
        images: str = "",
        *,
        operation: Operation | None = None,
        limits: CallLimits | None = None,
        traced: Callable[[grpc.aio.Channel], Any] = lambda channel: channel,
    ) -> None:
        self._endpoint, self._image_endpoint = _address(endpoint), _address(images or endpoint)
        self._calls, self._limits = Calls(self._endpoint, operation), limits or CallLimits()
        self._channel = grpc.aio.insecure_channel(self._endpoint, options=OPTIONS)
        self._image_channel = (
            self._channel
            if self._image_endpoint == self._endpoint
            else grpc.aio.insecure_channel(self._image_endpoint, options=OPTIONS)
        )
        self._commands_channel = grpc.aio.insecure_channel(self._endpoint, options=COMMAND_OPTIONS)
        self._runtime = api_pb2_grpc.RuntimeServiceStub(traced(self._channel))
        self._commands = api_pb2_grpc.RuntimeServiceStub(traced(self._commands_channel))
        self._images = api_pb2_grpc.ImageServiceStub(traced(self._image_channel))
        self._starts = KeptStarts(self._endpoint, OPTIONS, traced)
        self._runtime_name = ""

    async def keep_starts(self) -> None:
        """Until cancelled: containers are started, and sandboxes made and ended, over a connection on which the calls
        finish even if this process is killed or closes this client meanwhile."""
        await self._starts.run()

    async def close(self) -> None:
        await self._starts.close()
        for channel in {self._channel, self._image_channel, self._commands_channel}:
            await channel.close(grace=None)

    async def list_sandboxes(self, uid: str | None = None) -> tuple[SandboxState, ...]:
        async def ask(chosen: Json) -> list[SandboxState]:
            request = pb.ListPodSandboxRequest(filter=chosen)
            call = self._runtime.ListPodSandbox(request, timeout=self._limits.call)
            answer = await self._calls.ask("list sandboxes", uid or "", call)
            return [convert.sandbox_listed(item) for item in answer.items]

        return tuple(await lists.whole(ask, _pod_filter(uid), _id, lists.sandbox_states))

    async def list_containers(self, uid: str | None = None) -> tuple[ContainerState, ...]:
        async def ask(chosen: Json) -> list[ContainerState]:
            request = pb.ListContainersRequest(filter=chosen)
            call = self._runtime.ListContainers(request, timeout=self._limits.call)
            answer = await self._calls.ask("list containers", uid or "", call)
            runtime = await self._name()
            return [convert.container_listed(item, runtime) for item in answer.containers]

        async def sandboxes() -> Iterable[Json]:
            return [{"pod_sandbox_id": one.id} for one in await self.list_sandboxes(uid)]

        return tuple(await lists.whole(ask, _pod_filter(uid), _id, sandboxes, lists.container_states))

    async def sandbox_status(self, sandbox_id: str) -> SandboxState:
        request = pb.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id)
        answer = await self._calls.ask(
            "sandbox status", sandbox_id, self._runtime.PodSandboxStatus(request, timeout=self._limits.call)
        )
        return convert.sandbox_status(answer.status)

    async def container_status(self, container_id: str) -> ContainerState:
        request = pb.ContainerStatusRequest(container_id=container_id)
        call = self._runtime.ContainerStatus(request, timeout=self._limits.call)
        answer = await self._calls.ask("container status", container_id, call)
        return convert.container_status(answer.status, await self._name())

    async def run_sandbox(self, config: Json, runtime_handler: str = "") -> str:
        name = _pod_of(config)
        request = convert.build(
            pb.RunPodSandboxRequest, "run sandbox", name, config=config, runtime_handler=runtime_handler
        )
        answer = await self._calls.ask(
            "run sandbox", name, await self._kept("RunPodSandbox", request, self._limits.sandbox)
        )
        return str(answer.pod_sandbox_id)

    async def stop_sandbox(self, sandbox_id: str) -> None:
        request = pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id)
        await self._calls.ignore_not_found(
            "stop sandbox", sandbox_id, await self._kept("StopPodSandbox", request, self._limits.call)
        )

    async def remove_sandbox(self, sandbox_id: str) -> None:
        request = pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id)
        call = await self._kept("RemovePodSandbox", request, self._limits.call)
        await self._calls.ignore_not_found("remove sandbox", sandbox_id, call)

    async def create_container(self, sandbox_id: str, config: Json, sandbox_config: Json) -> str:
        name = f"{_pod_of(sandbox_config)}[{config['metadata']['name']}]"
        request = convert.build(
            pb.CreateContainerRequest,
            "create container",
            name,
            pod_sandbox_id=sandbox_id,
            config=config,
            sandbox_config=sandbox_config,
        )
        call = self._runtime.CreateContainer(request, timeout=self._limits.call)
        answer = await self._calls.ask("create container", name, call)
        return str(answer.container_id)

    async def start_container(self, container_id: str) -> None:
        request = pb.StartContainerRequest(container_id=container_id)
        await self._calls.ask(
            "start container", container_id, await self._kept("StartContainer", request, self._limits.call)
        )

    async def stop_container(self, container_id: str, grace_seconds: int) -> None:
        grace = min(grace_seconds, _LONGEST_GRACE)
        request = pb.StopContainerRequest(container_id=container_id, timeout=grace)
        call = self._runtime.StopContainer(request, timeout=grace + self._limits.call)
        await self._calls.ignore_not_found("stop container", container_id, call)

    async def remove_container(self, container_id: str) -> None:
        request = pb.RemoveContainerRequest(container_id=container_id)
        call = self._runtime.RemoveContainer(request, timeout=self._limits.call)
        await self._calls.ignore_not_found("remove container", container_id, call)

    async def update_resources(self, container_id: str, linux: Json) -> None:
        kind = pb.UpdateContainerResourcesRequest
        request = convert.build(kind, "update resources", container_id, container_id=container_id, linux=linux)
        call = self._runtime.UpdateContainerResources(request, timeout=self._limits.call)
        await self._calls.ask("update resources", container_id, call)

    async def update_sandbox(self, sandbox_id: str, overhead: Json, resources: Json) -> None:
        """Set what the pod as a whole may use from now on. A runtime without the call is fine."""
        request = convert.build(
            pb.UpdatePodSandboxResourcesRequest,
            "update sandbox",
            sandbox_id,
            pod_sandbox_id=sandbox_id,
            overhead=overhead or None,
            resources=resources or None,
        )
        call = self._runtime.UpdatePodSandboxResources(request, timeout=self._limits.call)
        try:
            await self._calls.ask("update sandbox", sandbox_id, call)
        except CriError as error:
            # containerd 2.2 answers UNKNOWN: https://github.com/containerd/containerd/pull/13023
            if error.code != "UNIMPLEMENTED" and "not implemented" not in error.message:
                raise

    async def exec_sync(
        self, container_id: str, argv: list[str], timeout: float, *, much_output: bool = False
    ) -> ExecResult:
        """Run `argv`; `timeout` in seconds, 0: none. A command out of time raises CriError, code DEADLINE_EXCEEDED; one
        that ended and wrote more than a MiB, 16 with `much_output`, code RESOURCE_EXHAUSTED."""
        # CRI counts whole seconds; a fraction must not become 0, which means no limit.
        seconds = max(1, round(timeout)) if timeout > 0 else 0
        kind = pb.ExecSyncRequest
        request = convert.build(kind, "exec", container_id, container_id=container_id, cmd=argv, timeout=seconds)
        runtime = self._runtime if much_output else self._commands
        call = runtime.ExecSync(request, timeout=seconds + _EXEC_SLACK if seconds else None)
        answer = await self._calls.ask("exec", container_id, call, operation="exec_sync")
        return ExecResult(answer.exit_code, answer.stdout, answer.stderr)

    async def exec_url(
        self, container_id: str, argv: list[str], *, tty: bool, stdin: bool, stdout: bool, stderr: bool
    ) -> str:
        request = pb.ExecRequest(
            container_id=container_id, cmd=argv, tty=tty, stdin=stdin, stdout=stdout, stderr=stderr
        )
        answer = await self._calls.ask("exec", container_id, self._runtime.Exec(request, timeout=self._limits.call))
        return str(answer.url)

    async def attach_url(self, container_id: str, *, tty: bool, stdin: bool, stdout: bool, stderr: bool) -> str:
        request = pb.AttachRequest(container_id=container_id, tty=tty, stdin=stdin, stdout=stdout, stderr=stderr)
        answer = await self._calls.ask("attach", container_id, self._runtime.Attach(request, timeout=self._limits.call))
        return str(answer.url)

    async def port_forward_url(self, sandbox_id: str, ports: list[int]) -> str:
        request = pb.PortForwardRequest(pod_sandbox_id=sandbox_id, port=ports)
        answer = await self._calls.ask(
            "port forward", sandbox_id, self._runtime.PortForward(request, timeout=self._limits.call)
        )
        return str(answer.url)

    async def reopen_log(self, container_id: str) -> None:
        request = pb.ReopenContainerLogRequest(container_id=container_id)
        await self._calls.ask(
            "reopen log", container_id, self._runtime.ReopenContainerLog(request, timeout=self._limits.call)
        )

    async def checkpoint_container(self, container_id: str, path: str, timeout: int) -> None:
        """Raises CriError: code UNIMPLEMENTED or the runtime's words when it cannot (no CRIU on the node)."""
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        request = pb.CheckpointContainerRequest(container_id=container_id, location=path, timeout=timeout)
        call = self._runtime.CheckpointContainer(request, timeout=timeout + _EXEC_SLACK if timeout else None)
        await self._calls.ask("checkpoint", container_id, call)

    async def sandbox_stats(self) -> list[Json]:
        """PodSandboxStats of every sandbox, as plain dicts with the writable layers of its containers and no more."""

        async def ask(chosen: Json) -> list[tuple[str, Json]]:
            request = pb.ListPodSandboxStatsRequest(filter=chosen)
            call = self._runtime.ListPodSandboxStats(request, timeout=self._limits.call)
            answer = await self._calls.ask("sandbox stats", "", call)
            return [(str(item.attributes.id), convert.layers(item)) for item in answer.stats]

        async def sandboxes() -> Iterable[Json]:
            return [{"id": one.id} for one in await self.list_sandboxes()]

        return [found for _, found in await lists.whole(ask, {}, lambda item: item[0], sandboxes)]

    async def status(self) -> Json:
        """StatusResponse as a plain dict: status.conditions, runtime_handlers, features."""
        request = pb.StatusRequest(verbose=False)
        return to_plain(await self._calls.ask("status", "", self._runtime.Status(request, timeout=self._limits.call)))

    async def version(self) -> Json:
        request = pb.VersionRequest(version="0.1.0")
        return to_plain(await self._calls.ask("version", "", self._runtime.Version(request, timeout=self._limits.call)))

    async def _name(self) -> str:
        """The runtime's name, asked for once: one that restarts is still the same."""
        if not self._runtime_name:
            self._runtime_name = str((await self.version()).get("runtime_name") or "unknown")
        return self._runtime_name

    async def cgroup_driver(self) -> str:
        """ "systemd", "cgroupfs", or "" if the runtime does not say. Code UNIMPLEMENTED: it cannot."""
        answer = await self._calls.ask(
            "runtime config", "", self._runtime.RuntimeConfig(pb.RuntimeConfigRequest(), timeout=self._limits.start)
        )
        if not answer.HasField("linux"):
            return ""
        known = dict(zip(pb.CgroupDriver.values(), pb.CgroupDriver.keys(), strict=True))
        name = known.get(answer.linux.cgroup_driver)
        if name is None:
            number = answer.linux.cgroup_driver
            raise CriError(f"{number} is not a cgroup driver of the CRI", step="runtime config", code="INTERNAL")
        return str(name).lower()

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Until the runtime ends the stream. Raises CriError; code UNIMPLEMENTED: it has no events."""
        runtime = await self._name()
        try:
            async for event in self._runtime.GetContainerEvents(pb.GetEventsRequest()):
                yield convert.event(event, runtime)
        except grpc.aio.AioRpcError as error:
            raise self._calls.translated("container events", "", error) from error

    async def image_status(self, reference: str) -> ImageFacts | None:
        request = pb.ImageStatusRequest(image={"image": reference})
        answer = await self._calls.ask(
            "image status", reference, self._images.ImageStatus(request, timeout=self._limits.image)
        )
        return convert.image_facts(answer.image) if answer.HasField("image") and answer.image.id else None

    async def pull_image(self, reference: str, auth: Json | None, sandbox_config: Json) -> str:
        """The image's reference (its digest or id). No time limit: cancel it to give up."""
        request = convert.build(
            pb.PullImageRequest,
            "pull image",
            reference,
            image={"image": reference},
            auth=auth,
            sandbox_config=sandbox_config or None,
        )
        answer = await self._calls.ask("pull image", reference, self._images.PullImage(request))
        return str(answer.image_ref)

    async def list_images(self) -> tuple[ImageFacts, ...]:
        answer = await self._calls.ask(
            "list images", "", self._images.ListImages(pb.ListImagesRequest(), timeout=self._limits.image)
        )
        return tuple(convert.image_facts(item) for item in answer.images)

    async def remove_image(self, reference: str) -> None:
        request = pb.RemoveImageRequest(image={"image": reference})
        await self._calls.ignore_not_found(
            "remove image", reference, self._images.RemoveImage(request, timeout=self._limits.call)
        )

    async def image_fs_info(self) -> list[Json]:
        call = self._images.ImageFsInfo(pb.ImageFsInfoRequest(), timeout=self._limits.image)
        answer = await self._calls.ask("image filesystem", "", call)
        return [to_plain(item) for item in answer.image_filesystems]

    async def _kept(self, method: str, request: Any, timeout: float) -> Awaitable[Any]:
        """A call that finishes even if this process is killed, where there is a connection for it."""
        stub = await self._starts.ready()
        call: Awaitable[Any] = getattr(stub or self._runtime, method)(request, timeout=timeout)
        return self._starts.finish(call) if stub else call


def _address(endpoint: str) -> str:
    return endpoint if "://" in endpoint else f"unix://{endpoint}"


def _id(one: SandboxState | ContainerState) -> str:
    return one.id


def _pod_filter(uid: str | None) -> Json:
    return {"label_selector": {convert.POD_UID: uid}} if uid else {}


def _pod_of(sandbox_config: Json) -> str:
    meta = sandbox_config["metadata"]
    return f"{meta['namespace']}/{meta['name']}"
