"""The container runtime: its state, its events, and its two CRI services as the agent calls them.

CRI configurations are plain dicts with the field names of runtime/v1 api.proto, so that plans can build them and stay
pure; edge/cri.py turns them into messages.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from agent.common.model.pods import ContainerState, ExecResult, ImageFacts, SandboxState
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class RuntimeEvent:
    """A hint that something happened to a pod: ask for its state, do not trust the event itself.

    The exception is `ended`, a container that has exited: that cannot change any more.
    """

    uid: str
    container_id: str
    type: str
    ended: ContainerState | None = None


class RuntimeService(Protocol):
    """CRI RuntimeService (edge/cri.py). Every call raises CriError (NodewrightError) with the CRI code and message."""

    async def list_sandboxes(self, uid: str | None = None) -> tuple[SandboxState, ...]: ...

    async def list_containers(self, uid: str | None = None) -> tuple[ContainerState, ...]: ...

    async def sandbox_status(self, sandbox_id: str) -> SandboxState: ...

    async def container_status(self, container_id: str) -> ContainerState: ...

    async def run_sandbox(self, config: Json, runtime_handler: str = "") -> str: ...

    async def stop_sandbox(self, sandbox_id: str) -> None: ...

    async def remove_sandbox(self, sandbox_id: str) -> None: ...

    async def create_container(self, sandbox_id: str, config: Json, sandbox_config: Json) -> str: ...

    async def start_container(self, container_id: str) -> None: ...

    async def stop_container(self, container_id: str, grace_seconds: int) -> None: ...

    async def remove_container(self, container_id: str) -> None: ...

    async def update_resources(self, container_id: str, linux: Json) -> None: ...

    async def update_sandbox(self, sandbox_id: str, overhead: Json, resources: Json) -> None: ...

    async def exec_sync(self, container_id: str, argv: list[str], timeout: float) -> ExecResult: ...

    async def exec_url(
        self, container_id: str, argv: list[str], *, tty: bool, stdin: bool, stdout: bool, stderr: bool
    ) -> str: ...

    async def attach_url(self, container_id: str, *, tty: bool, stdin: bool, stdout: bool, stderr: bool) -> str: ...

    async def port_forward_url(self, sandbox_id: str, ports: list[int]) -> str: ...

    async def reopen_log(self, container_id: str) -> None: ...

    async def checkpoint_container(self, container_id: str, path: str, timeout: int) -> None:
        """Into an archive at `path`; `timeout` in seconds, 0: the runtime's own."""
        ...

    async def sandbox_stats(self) -> list[Json]: ...

    async def status(self) -> Json: ...

    async def version(self) -> Json: ...

    def events(self) -> AsyncIterator[RuntimeEvent]: ...


class ImageService(Protocol):
    """CRI ImageService (runtime/edge/cri.py)."""

    async def image_status(self, reference: str) -> ImageFacts | None: ...

    async def pull_image(self, reference: str, auth: Json | None, sandbox_config: Json) -> str: ...

    async def list_images(self) -> tuple[ImageFacts, ...]: ...

    async def remove_image(self, reference: str) -> None: ...

    async def image_fs_info(self) -> list[Json]: ...


@dataclass(frozen=True, slots=True)
class RuntimeHandler:
    """A handler of the container runtime (RuntimeClass) and what it supports."""

    name: str
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The last answer of the container runtime. `problems`: why no pod can run now, in upstream's words."""

    name: str = "unknown"
    version: str = "Unknown"
    handlers: tuple[RuntimeHandler, ...] = ()
    supplemental_groups_policy: bool | None = None
    problems: tuple[str, ...] = ("container runtime status check may not have completed yet",)
    network_ready: bool = True  # until the runtime says otherwise
