"""What several rooms ask of each other. A Protocol that only one room asks for stands beside its asker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from agent.common.model.pods import ContainerState, ObservedPod, Pod
from nodelib.json_values import Json


class CheckpointStore(Protocol):
    """Small files that survive the agent (common/edge/checkpoint.py). Every call raises Temporary naming the file."""

    async def read(self, name: str) -> str | None: ...

    async def write(self, name: str, text: str) -> None: ...

    async def set_aside(self, name: str) -> str: ...


class Events(Protocol):
    """Kubernetes Events about pods and the node, aggregated as upstream's recorder does (common/work/events.py)."""

    def emit(
        self,
        about: Json,
        kind: str,
        reason: str,
        message: str,
        *,
        container: str = "",
        host: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """`kind`: Normal or Warning; `about`: a Pod's raw object or an ObjectReference. Never blocks, never raises."""
        ...


class PodFiles(Protocol):
    """The few files of a pod that its worker itself reads and writes (pods/edge/pod_files.py)."""

    async def termination_message(self, container: ContainerState) -> str:
        """The message that an ended container left (a file, or the end of its log, as its policy says)."""
        ...

    async def container_started(self, pod: Pod, name: str, container_id: str, log_path: str) -> None:
        """Link the log under /var/log/containers, where log collectors expect it."""
        ...

    async def remove_container_logs(self, container: ContainerState) -> None: ...

    async def remove_pod_logs(self, pod: Pod) -> None:
        """Remove the pod's log directory and the links to it; idempotent."""
        ...

    async def logged_pods(self) -> frozenset[str]:
        """UIDs of all pods that have a log directory."""
        ...

    async def remove_left_logs(self, uid: str) -> None:
        """remove_pod_logs() for a pod of which only the UID is known."""
        ...


class PodView(Protocol):
    """The pods of this node, for the server, statistics and metrics (pods/work/registry.py)."""

    def pods(self) -> list[Pod]: ...

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def pod_by_uid(self, uid: str) -> Pod | None: ...

    def active(self) -> list[Pod]:
        """Pods that hold what they asked for."""
        ...

    def status(self, uid: str) -> Json:
        """The newest status that the agent has computed, sent or not."""
        ...

    def observed(self, uid: str) -> ObservedPod:
        """The newest view of the runtime; an empty one when nothing is known."""
        ...


Notify = Callable[[str], None]
