"""The agent's part of volumes and our CSI driver, a process of its own: a claim that grew while no pod used it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from agent.common.model.pod_settings import PodPaths
from agent.plugins.model import PluginInfo
from agent.volumes.edge.csi_disk import CsiDisk
from agent.volumes.edge.csi_driver import CsiDriver
from agent.volumes.model.csi import CsiVolume
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_grower import CsiGrower
from agent.volumes.work.csi_volumes import CsiVolumes, CsiVolumesDeps
from agent.volumes.work.expansion import Expansion
from csi.model import DRIVER
from nodelib import mounts
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.fakes.claims import FakeClaimApi
from tests.fakes.csi import FakeCsiApi, NoEvents
from tests.netns.csi_world import MIB, MOUNT
from tests.netns.mount_namespace import isolated
from tests.netns.test_csi_daemon import Daemon, daemon

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loop devices")]


async def _nothing(_: Any) -> None: ...


async def _volumes(one: Daemon, root: Path, claims: FakeClaimApi) -> CsiVolumes:
    api, clock, known = FakeCsiApi(), SystemClock(), asyncio.Event()
    api.drivers[DRIVER] = {"spec": {"attachRequired": False}}
    drivers = CsiDrivers(api, CsiDriver, clock, lambda: None)
    await drivers.register(PluginInfo("CSIPlugin", DRIVER, str(one.socket), ("1.0.0",)))
    grower = CsiGrower(drivers, api, Expansion(claims, NoEvents(), clock))
    deps = CsiVolumesDeps(drivers, api, CsiDisk(str(root)), clock, _nothing, known, _nothing, grower)
    return CsiVolumes(str(root), "node1", deps)


def test_it_has_grown_before_its_pod_begins(tmp_path: Path) -> None:
    """Also where root lacks CAP_SYS_RESOURCE, as on the development machine."""

    @isolated
    def run() -> None:
        with daemon(tmp_path) as one:
            asked: Json = {"capacity_range": {"required_bytes": 32 * MIB}, "volume_capabilities": [MOUNT]}
            number = one.call("Controller.CreateVolume", name="pvc-1", **asked)["volume"]["volume_id"]
            asyncio.run(story(one, number))

    async def story(one: Daemon, number: str) -> None:
        claims = FakeClaimApi("32Mi")
        agent = await _volumes(one, tmp_path / "kubelet", claims)
        size = 32 * MIB
        volume = CsiVolume("v", "pv-1", DRIVER, number, fs_type="ext4", claim="c", claim_size=size, size=size)
        first = PodPaths(str(tmp_path / "kubelet"), "first")
        mounted = await agent.mount(pod(container(), meta={"uid": "first"}), first, [volume])
        Path(mounted["v"].path, "kept").write_text("1")
        await agent.release(first)

        claims.ask("256Mi")
        larger = CsiVolume("v", "pv-1", DRIVER, number, fs_type="ext4", claim="c", claim_size=size, size=256 * MIB)
        second = PodPaths(str(tmp_path / "kubelet"), "second")
        target = (await agent.mount(pod(container(), meta={"uid": "second"}), second, [larger]))["v"].path
        found = os.statvfs(target)
        assert found.f_blocks * found.f_frsize > 200 * MIB and Path(target, "kept").read_text() == "1"
        assert (claims.size, claims.conditions) == ("256Mi", [])
        assert len(mounts.mounts_of(os.stat(target).st_dev)) == 2, "staged once and published once"
        await agent.release(second)
        assert not mounts.mounts_below(str(tmp_path / "kubelet"))

    run()
