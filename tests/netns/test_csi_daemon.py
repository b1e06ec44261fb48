"""The CSI driver as a process: its sockets, its answers to a kubelet, SIGKILL and SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.common.model.errors import PluginError
from agent.plugins.edge.rpc import PluginClient
from agent.volumes.edge.csi_driver import CsiDriver
from csi.model import DRIVER, TOPOLOGY
from nodelib import mounts
from nodelib.json_values import Json
from nodelib.plugin_apis.csi import CSI
from nodelib.plugin_apis.registration import REGISTRATION
from tests.netns.csi_world import MIB, MOUNT
from tests.netns.mount_namespace import isolated
from tests.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loop devices")]

_PROJECT = Path(__file__).parents[2]


class Daemon:
    def __init__(self, folder: Path) -> None:
        self.folder, self.socket = folder, folder / "csi.sock"
        self.registrar = folder / "r" / f"{DRIVER}-reg.sock"
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        argv = [sys.executable, "-m", "csi", "--hostname-override", "Node1", "--endpoint", str(self.socket)]
        argv += ["--registry", str(self.folder / "r"), "--root", str(self.folder / "storage")]
        self.process = subprocess.Popen(argv, cwd=_PROJECT)
        asyncio.run(self.serving())

    async def serving(self) -> None:
        async def answers() -> bool:
            client = PluginClient(CSI, "driver", str(self.socket))
            try:
                return bool((await client.call("Identity.Probe", {}, timeout=2))["ready"]["value"])
            except PluginError:
                return False
            finally:
                await client.close()

        await until(answers)

    def call(self, method: str, *, api: Any = CSI, socket: Path | None = None, **fields: Any) -> Json:
        async def ask() -> Json:
            client = PluginClient(api, "driver", str(socket or self.socket))
            try:
                return await client.call(method, fields, timeout=30)
            finally:
                await client.close()

        return asyncio.run(ask())

    def refused(self, method: str, **fields: Any) -> PluginError:
        with pytest.raises(PluginError) as raised:
            self.call(method, **fields)
        return raised.value


@contextmanager
def daemon(folder: Path) -> Iterator[Daemon]:
    made = Daemon(folder)
    try:
        made.start()
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        for one in reversed(mounts.mounts_below(str(folder))):
            mounts.unmount(one.path, mounts.MNT_DETACH)


def test_it_registers_and_serves_root_alone(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with daemon(tmp_path) as one:
            info = one.call("Registration.GetInfo", api=REGISTRATION, socket=one.registrar)
            assert (info["type"], info["name"], info["endpoint"]) == ("CSIPlugin", DRIVER, str(one.socket))
            assert {stat.S_IMODE(path.stat().st_mode) for path in (one.socket, one.registrar)} == {0o600}
            assert stat.S_IMODE((tmp_path / "storage").stat().st_mode) == 0o700
            node = one.call("Node.NodeGetInfo")
            assert node["node_id"] == "node1" and node["accessible_topology"]["segments"] == {TOPOLOGY: "node1"}
            assert one.call("Identity.GetPluginInfo")["name"] == DRIVER

    run()


def test_a_volume_lives_through_sigkill_and_sigterm(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with daemon(tmp_path) as one:
            asked: Json = {"capacity_range": {"required_bytes": 32 * MIB}, "volume_capabilities": [MOUNT]}
            number = one.call("Controller.CreateVolume", name="pvc-1", **asked)["volume"]["volume_id"]
            staged, target = tmp_path / "staged", tmp_path / "target"
            staged.mkdir()
            stage = {"volume_id": number, "staging_target_path": str(staged), "volume_capability": MOUNT}
            one.call("Node.NodeStageVolume", **stage)
            one.call("Node.NodePublishVolume", target_path=str(target), **stage)
            (target / "a").write_text("1")
            one.process.kill()
            one.process.wait()
            (target / "b").write_text("2")  # pods do not notice
            one.start()
            one.call("Node.NodeStageVolume", **stage)
            one.call("Node.NodePublishVolume", target_path=str(target), **stage)
            assert len(mounts.mounts_below(str(target))) == 1
            one.process.send_signal(signal.SIGTERM)
            assert one.process.wait(20) == 0
            assert (target / "b").read_text() == "2"
            one.start()
            one.call("Node.NodeUnpublishVolume", volume_id=number, target_path=str(target))
            one.call("Node.NodeUnstageVolume", volume_id=number, staging_target_path=str(staged))
            one.call("Controller.DeleteVolume", volume_id=number)
            assert os.listdir(tmp_path / "storage" / "volumes") == []

    run()


@pytest.mark.parametrize(
    ("method", "fields", "code"),
    [
        ("Controller.CreateVolume", {"volume_capabilities": [MOUNT]}, "INVALID_ARGUMENT"),
        ("Controller.CreateVolume", {"name": "x" * 129, "volume_capabilities": [MOUNT]}, "INVALID_ARGUMENT"),
        ("Controller.CreateVolume", {"name": "x", "volume_capabilities": []}, "INVALID_ARGUMENT"),
        (
            "Controller.CreateVolume",
            {"name": "x", "volume_capabilities": [MOUNT], "capacity_range": {"required_bytes": 1 << 62}},
            "OUT_OF_RANGE",
        ),
        (
            "Node.NodeStageVolume",
            {"volume_id": "../../etc", "staging_target_path": "/tmp/x", "volume_capability": MOUNT},
            "NOT_FOUND",
        ),
        ("Node.NodeUnpublishVolume", {"volume_id": "a", "target_path": "/a/../etc"}, "INVALID_ARGUMENT"),
        ("Node.NodeUnpublishVolume", {"volume_id": "a", "target_path": "/etc/hostname"}, "INVALID_ARGUMENT"),
        ("Node.NodeGetVolumeStats", {"volume_id": "a", "volume_path": "/"}, "NOT_FOUND"),
        ("Controller.ListVolumes", {"starting_token": "../x"}, "ABORTED"),
    ],
    ids=["no name", "long name", "no capability", "huge", "id is a path", "dots", "a file of others", "root", "token"],
)
def test_hostile_requests(tmp_path: Path, method: str, fields: Json, code: str) -> None:
    @isolated
    def run() -> None:
        with daemon(tmp_path) as one:
            assert one.refused(method, **fields).code == code
            assert os.listdir(tmp_path / "storage" / "volumes") == []

    run()


def test_the_agent_s_own_client_understands_it(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        with daemon(tmp_path) as one:
            asked: Json = {"capacity_range": {"required_bytes": 32 * MIB}, "volume_capabilities": [MOUNT]}
            number = one.call("Controller.CreateVolume", name="pvc-1", **asked)["volume"]["volume_id"]
            asyncio.run(as_the_agent(str(one.socket), number, tmp_path))

    async def as_the_agent(socket: str, number: str, folder: Path) -> None:
        driver = CsiDriver(DRIVER, socket)
        try:
            facts = await driver.facts()
            assert (facts.node_id, facts.topology) == ("node1", {TOPOLOGY: "node1"})
            assert facts.capabilities == {1, 2, 3, 5} and facts.max_volumes == 0
            staged, target = folder / "staged", folder / "target"
            staged.mkdir()
            stage = {"volume_id": number, "staging_target_path": str(staged), "volume_capability": MOUNT}
            await driver.stage(stage)
            await driver.publish({**stage, "target_path": str(target)})
            assert {entry["unit"] for entry in await driver.usage(number, str(target))} == {1, 2}
            with pytest.raises(PluginError, match="is not mounted at"):
                await driver.usage(number, str(folder))
            await driver.unpublish(number, str(target))
            await driver.unstage(number, str(staged))
        finally:
            await driver.close()

    run()
