"""Copies of large volumes: whoever makes many of them holds up neither the helpers nor other namespaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from csi import controller
from csi.capacity import Capacity
from csi.controller import Controller
from csi.model import Image, Kind, Mode, Space
from csi.names import id_of
from csi.operations import Operations
from csi.ports import Disk
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused
from tests.fakes.clock import FakeClock
from tests.waiting import until

GIB = 1 << 30
SOURCE = id_of(Kind.VOLUME, "source")


class SlowDisk:
    """Copies take until `ready`. `copying`: those that are under way."""

    def __init__(self) -> None:
        self.volumes = {SOURCE: Image(SOURCE, "source", GIB, Mode.MOUNT, "ext4", "", 0)}
        self.copying: list[str] = []
        self.ready = asyncio.Event()

    async def image(self, kind: Kind, image_id: str) -> Image | None:
        return self.volumes.get(image_id)

    async def images(self, kind: Kind) -> list[Image]:
        return list(self.volumes.values())

    async def space(self) -> Space:
        return Space(1000 * GIB, 1000 * GIB, {})

    @asynccontextmanager
    async def at_rest(self, image: Image) -> AsyncIterator[None]:
        yield

    async def make(self, kind: Kind, image: Image, origin: Any = None, *, at_once: bool = False) -> None:
        if origin is not None:
            self.copying.append(image.name)
            await self.ready.wait()
        self.volumes[image.id] = image


def asked(name: str, namespace: str, *, copy: bool = True) -> Json:
    found: Json = {
        "name": name,
        "capacity_range": {"required_bytes": GIB},
        "volume_capabilities": [{"mount": {"fs_type": "ext4"}, "access_mode": {"mode": 1}}],
        "parameters": {"csi.storage.k8s.io/pvc/namespace": namespace},
    }
    return found | ({"volume_content_source": {"volume": {"volume_id": SOURCE}}} if copy else {})


async def test_who_copies_much_holds_up_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "PATIENCE", 0.05)
    disk, operations = SlowDisk(), Operations()
    capacity = Capacity(cast(Disk, disk), 0.0)
    made = Controller(cast(Disk, disk), capacity, operations, FakeClock(), "node1")
    calls = [made.create_volume(asked(f"evil{number}", "evil")) for number in range(10)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(one, Refused) and one.code == "ABORTED" for one in answers), "a helper has its calls back"
    assert disk.copying == ["evil0"]
    with pytest.raises(Refused):
        await made.create_volume(asked("good", "shop"))
    assert disk.copying == ["evil0", "good"]
    assert await made.create_volume(asked("plain", "shop", copy=False))
    disk.ready.set()
    await until(lambda: len(disk.volumes) == 13)
    assert (await made.create_volume(asked("evil9", "evil")))["volume"]["capacity_bytes"] == GIB
    await operations.close()
