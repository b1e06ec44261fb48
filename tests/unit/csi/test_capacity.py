"""Room for volumes: what one call was promised is nobody else's, and whoever may create pods does not get all of it."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

from csi.capacity import Capacity
from csi.model import Image, Kind, Mode, Space
from csi.names import id_of, own_id
from csi.ports import Disk
from nodelib.plugin_apis.errors import Refused

GIB = 1 << 30


class Full:
    """A disk of 100 GiB."""

    def __init__(self) -> None:
        self.volumes: list[Image] = []

    async def images(self, kind: Kind) -> list[Image]:
        return self.volumes

    async def space(self) -> Space:
        return Space(100 * GIB, 100 * GIB, {})

    def add(self, number: str, size: int) -> None:
        self.volumes.append(Image(number, number, size, Mode.MOUNT, "ext4", "", 0))


def capacity(disk: Any) -> Capacity:
    return Capacity(cast(Disk, disk), 0.1)


async def test_inline_volumes_leave_half_of_the_room_to_claims() -> None:
    """No quota counts them: pods of one namespace took the room of the node from the claims of all others."""
    disk = Full()
    disk.add(own_id("csi-1"), 30 * GIB)
    one = capacity(disk)
    with pytest.raises(Refused) as refused:
        async with one.reserved(16 * GIB, inline=True):
            pass
    assert refused.value.code == "RESOURCE_EXHAUSTED" and "inline" in refused.value.message
    async with AsyncExitStack() as held:
        await held.enter_async_context(one.reserved(10 * GIB, inline=True))
        with pytest.raises(Refused):
            await held.enter_async_context(one.reserved(6 * GIB, inline=True))
        await held.enter_async_context(one.reserved(50 * GIB))
    assert await one.available_inline() == 15 * GIB


async def test_claims_leave_inline_volumes_what_is_left() -> None:
    disk = Full()
    disk.add(id_of(Kind.VOLUME, "pvc-1"), 85 * GIB)
    one = capacity(disk)
    assert (await one.available(), await one.available_inline()) == (5 * GIB, 45 * GIB)
    with pytest.raises(Refused):
        async with one.reserved(6 * GIB, inline=True):
            pass
