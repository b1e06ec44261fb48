"""The CSI driver's services on a real folder, with real loop devices and mounts."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from csi.capacity import Capacity
from csi.controller import Controller
from csi.edge.disk import Disk
from csi.edge.loops import find
from csi.model import Kind
from csi.node import Node
from csi.operations import Operations
from nodelib import mounts
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from nodelib.plugin_apis.csi import CSI
from nodelib.plugin_apis.errors import Refused
from nodelib.plugin_apis.plain import to_plain

MIB = 1 << 20
MOUNT: Json = {"mount": {"fs_type": "ext4"}, "access_mode": {"mode": 1}}
BLOCK: Json = {"block": {}, "access_mode": {"mode": 1}}


class Driver:
    """A driver that has just been started on the folder `root`; calls go through the messages of the specification."""

    def __init__(self, folder: Path, reserve: float = 0.0, disk: Disk | None = None) -> None:
        self.folder, self.root = folder, folder / "storage"
        self.disk = disk or Disk(str(self.root))
        capacity, operations = Capacity(self.disk, reserve), Operations()
        clock = SystemClock()
        controller = Controller(self.disk, capacity, operations, clock, "node1")
        node = Node(self.disk, capacity, operations, clock, "node1")
        self._methods = {f"Controller.{name}": work for name, work in controller.methods().items()}
        self._methods |= {f"Node.{name}": work for name, work in node.methods().items()}

    def recover(self) -> None:
        asyncio.run(self.disk.recover())

    async def ask(self, method: str, **fields: Any) -> Json:
        """The answer, as a client gets it. Raises Refused."""
        call = CSI.calls[method]
        answer = await self._methods[method](to_plain(call.request(**fields)))
        return call.decode(call.response(**answer).SerializeToString())

    def call(self, method: str, **fields: Any) -> Json:
        return asyncio.run(self.ask(method, **fields))

    def refused(self, method: str, **fields: Any) -> Refused:
        with pytest.raises(Refused) as raised:
            self.call(method, **fields)
        return raised.value

    def create(self, name: str = "one", size: int = 32 * MIB, capability: Json = MOUNT, **more: Any) -> str:
        asked = {"capacity_range": {"required_bytes": size}, "volume_capabilities": [capability], **more}
        return str(self.call("Controller.CreateVolume", name=name, **asked)["volume"]["volume_id"])

    def stage(self, number: str, capability: Json = MOUNT) -> Path:
        target = self.folder / f"stage-{number}"
        target.mkdir(exist_ok=True)
        self.call(
            "Node.NodeStageVolume", volume_id=number, staging_target_path=str(target), volume_capability=capability
        )
        return target

    def publish(self, number: str, name: str = "pod", capability: Json = MOUNT, **more: Any) -> Path:
        target = self.folder / name
        staged = str(self.folder / f"stage-{number}")
        asked = {"volume_id": number, "staging_target_path": staged, "volume_capability": capability}
        self.call("Node.NodePublishVolume", target_path=str(target), **asked, **more)
        return target

    def unpublish(self, number: str, name: str = "pod") -> None:
        self.call("Node.NodeUnpublishVolume", volume_id=number, target_path=str(self.folder / name))

    def unstage(self, number: str) -> None:
        staged = str(self.folder / f"stage-{number}")
        self.call("Node.NodeUnstageVolume", volume_id=number, staging_target_path=staged)

    def image(self, number: str, kind: Kind = Kind.VOLUME) -> Path:
        return self.root / kind / number / "disk.img"

    def loops(self, number: str) -> list[str]:
        return [one.path for one in find(str(self.image(number)))]

    def left(self) -> list[str]:
        """Every entry of the driver's folders."""
        return sorted(f"{kind}/{name}" for kind in Kind for name in os.listdir(self.root / kind))


@contextmanager
def driver(folder: Path, reserve: float = 0.0) -> Iterator[Driver]:
    """At the end, nothing of it is mounted or attached."""
    made = Driver(folder, reserve)
    made.recover()
    try:
        yield made
    finally:
        for one in reversed(mounts.mounts_below(str(folder))):
            if one.path != str(folder):
                mounts.unmount(one.path, mounts.MNT_DETACH)
        for number in os.listdir(made.root / Kind.VOLUME):
            asyncio.run(made.disk.remove(Kind.VOLUME, number))


def may_grow_mounted() -> bool:
    """Whether the kernel lets this process grow a mounted ext4."""
    line = next(one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("CapEff"))
    return bool(int(line.split()[1], 16) >> 24 & 1)
