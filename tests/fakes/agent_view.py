"""A pod registry and a runtime in memory, as the server sees them."""

from __future__ import annotations

from typing import Any

from agent.common.model.errors import CriError, CriNotFound
from agent.common.model.pods import ContainerState, ExecResult, ObservedPod, Pod, RunState, SandboxState
from nodelib.json_values import Json
from tests.builders.pods import container, container_status, pod


class FakeView:
    """agent.common.ports.PodView. Fill the dicts."""

    def __init__(self) -> None:
        self.by_uid: dict[str, Pod] = {}
        self.statuses: dict[str, Json] = {}
        self.observations: dict[str, ObservedPod] = {}

    def pods(self) -> list[Pod]:
        return list(self.by_uid.values())

    def pod(self, namespace: str, name: str) -> Pod | None:
        return next((pod for pod in self.by_uid.values() if (pod.namespace, pod.name) == (namespace, name)), None)

    def pod_by_uid(self, uid: str) -> Pod | None:
        return self.by_uid.get(uid)

    def active(self) -> list[Pod]:
        return self.pods()

    def status(self, uid: str) -> Json:
        return self.statuses.get(uid, {})

    def observed(self, uid: str) -> ObservedPod:
        return self.observations.get(uid, ObservedPod(uid))


class FakeServerRuntime:
    """The calls of agent.runtime.model.RuntimeService that the server and the log rotation make."""

    def __init__(self, view: FakeView) -> None:
        self.view = view
        self.url = ""
        self.asked: list[tuple[str, Any]] = []
        self.fail: CriError | None = None
        self.result = ExecResult(0, b"out", b"")
        self.reopened: list[str] = []
        self.on_reopen: Any = None

    def _maybe_fail(self) -> None:
        if self.fail is not None:
            raise self.fail

    async def list_containers(self, uid: str | None = None) -> tuple[ContainerState, ...]:
        return tuple(entry for pod in self._observed(uid) for entry in pod.containers)

    async def list_sandboxes(self, uid: str | None = None) -> tuple[SandboxState, ...]:
        return tuple(entry for pod in self._observed(uid) for entry in pod.sandboxes)

    async def checkpoint_container(self, container_id: str, path: str, timeout: int) -> None:
        raise CriError("CRIU is not here", code="UNKNOWN")

    async def container_status(self, container_id: str) -> ContainerState:
        for entry in await self.list_containers():
            if entry.id == container_id:
                return entry
        raise CriNotFound("no such container", code="NOT_FOUND", obj=container_id)

    async def exec_url(self, container_id: str, argv: list[str], **streams: bool) -> str:
        self._maybe_fail()
        self.asked.append((container_id, {"argv": argv, **streams}))
        return self.url

    async def attach_url(self, container_id: str, **streams: bool) -> str:
        self._maybe_fail()
        self.asked.append((container_id, streams))
        return self.url

    async def port_forward_url(self, sandbox_id: str, ports: list[int]) -> str:
        self._maybe_fail()
        self.asked.append((sandbox_id, ports))
        return self.url

    async def exec_sync(
        self, container_id: str, argv: list[str], timeout: float, *, much_output: bool = False
    ) -> ExecResult:
        self._maybe_fail()
        self.asked.append((container_id, argv))
        if len(self.result.stdout) > 1024 * 1024 and not much_output:
            raise CriError("Received message larger than max", code="RESOURCE_EXHAUSTED")
        return self.result

    async def reopen_log(self, container_id: str) -> None:
        self._maybe_fail()
        self.reopened.append(container_id)
        if self.on_reopen is not None:
            self.on_reopen()

    async def sandbox_stats(self) -> list[Json]:
        self._maybe_fail()
        return []

    def _observed(self, uid: str | None) -> list[ObservedPod]:
        return [pod for key, pod in self.view.observations.items() if uid in (None, key)]


def add_pod(view: FakeView, name: str, uid: str, *, log_path: str = "", namespace: str = "ns", **fields: Any) -> None:
    """A running pod with one container "main"; `fields` are the container's."""
    view.by_uid[uid] = pod(container(**fields), meta={"name": name, "namespace": namespace, "uid": uid})
    identity = f"{uid}-main"
    view.statuses[uid] = {
        "phase": "Running",
        "containerStatuses": [container_status(containerID=f"containerd://{identity}")],
    }
    state = ContainerState(identity, f"{uid}-box", uid, "main", 0, RunState.RUNNING, 1, 1, log_path=log_path)
    sandbox = SandboxState(f"{uid}-box", uid, namespace, name, 0, True, 1)
    view.observations[uid] = ObservedPod(uid, (sandbox,), (state,))
