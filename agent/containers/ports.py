"""Protocols of what container configurations are made from: API objects and the pod's directory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.common.model.pods import Pod
from agent.volumes.model.sources import ObjectRef
from nodelib.json_values import Json


class ConfigObjects(Protocol):
    """ConfigMaps, Secrets and Services (volumes/work/pod_objects.py)."""

    async def object(self, pod: Pod, ref: ObjectRef) -> Json | None: ...

    async def services(self) -> Sequence[Json]:
        """All Services. Raises Temporary until they have been read once."""
        ...


class ContainerDisk(Protocol):
    """Files of containers in the pod's directory (volumes/edge/pod_disk.py). Blocking; raises OSError."""

    def bind_sub_path(self, volume: str, path: str, target: str, *, keeps_peers: bool = False) -> str:
        """`keeps_peers`: what is mounted at the target shows in the volume, too (Bidirectional)."""
        ...

    def read_inside(self, volume: str, path: str) -> str | None: ...

    def read_text(self, path: str) -> str: ...

    def write_text(self, path: str, text: str, mode: int) -> None: ...

    def make_directory(self, path: str, mode: int) -> None: ...
