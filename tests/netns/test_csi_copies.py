"""Copies of volumes: what is copied is not unmounted meanwhile, and what copies share is promised to each of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from csi.model import Kind
from nodelib import mounts
from nodelib.plugin_apis.errors import Refused
from tests.netns.csi_world import BLOCK, MIB, Driver, driver
from tests.netns.mount_namespace import isolated

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loop devices")]

SIZE = 128 * MIB


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


def test_what_is_copied_is_not_unmounted_meanwhile(tmp_path: Path) -> None:
    """Unmounted while it was frozen, it stayed in the kernel: the space of a deleted volume was never free again."""

    @isolated
    def run() -> None:
        with driver(tmp_path) as one:
            number = one.create()
            staged = one.stage(number)
            loops = one.loops(number)
            asyncio.run(end_the_pod_during_a_copy(one, number))
            one.unstage(number)
            assert mounts.mount_at(str(staged)) is None
            one.call("Controller.DeleteVolume", volume_id=number)
            assert not _attached(loops), "its device is free again"

    async def end_the_pod_during_a_copy(one: Driver, number: str) -> None:
        image = await one.disk.image(Kind.VOLUME, number)
        assert image is not None
        staged = one.folder / f"stage-{number}"
        async with one.disk.at_rest(image):
            with contextlib.suppress(Refused):
                await one.ask("Node.NodeUnstageVolume", volume_id=number, staging_target_path=str(staged))

    run()


def _attached(devices: list[str]) -> list[str]:
    return [one for one in devices if os.path.exists(f"/sys/block/{os.path.basename(one)}/loop/backing_file")]


@pytest.mark.parametrize(
    "kind", [pytest.param("xfs", marks=needs("mkfs.xfs")), pytest.param("btrfs", marks=needs("mkfs.btrfs"))]
)
def test_what_copies_share_is_promised_to_each_of_them(tmp_path: Path, kind: str) -> None:
    """Copies of full volumes cost nothing when they were made, and there was no room for what was written to them."""

    @isolated
    def run() -> None:
        with driver(_sharing(tmp_path, kind)) as one:
            number = one.create(size=SIZE, capability=BLOCK)
            before = _left(one)
            _fill(one.image(number))
            assert abs(_left(one) - before) < 32 * MIB
            source = {"volume": {"volume_id": number}}
            size = {"required_bytes": SIZE}
            asked = {"volume_capabilities": [BLOCK], "volume_content_source": source, "capacity_range": size}
            copies = []
            with contextlib.suppress(Refused):
                for made in range(20):
                    answer = asyncio.run(one.ask("Controller.CreateVolume", name=f"copy{made}", **asked))
                    copies.append(answer["volume"]["volume_id"])
            assert 1 <= len(copies) <= before // SIZE
            for copy in copies:
                _fill(one.image(copy))  # what it was promised

    run()


def _sharing(folder: Path, kind: str) -> Path:
    """A file system that shares blocks, mounted."""
    image, there = folder / f"{kind}.img", folder / kind
    there.mkdir()
    with open(image, "wb") as file:
        file.truncate(800 * MIB)
    subprocess.run([f"mkfs.{kind}", "-q", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, there], check=True)
    return there


def _left(one: Driver) -> int:
    return int(one.call("Controller.GetCapacity")["available_capacity"])


def _fill(image: Path) -> None:
    with open(image, "r+b") as file:
        for _ in range(SIZE // MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())
