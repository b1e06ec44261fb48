"""A registration folder full of junk, and plugins whose answers are enormous, malformed, or never come."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket as sockets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.common.model.errors import PluginError
from agent.plugins.edge.registration import PluginSockets, RegistrationClient
from agent.plugins.model import PluginInfo, SocketFile
from agent.plugins.plan import check_info
from agent.plugins.work import PluginManager
from nodelib.errors import Invalid
from nodelib.plugin_apis.registration import REGISTRATION
from nodelib.plugin_apis.server import serve
from tests.fakes.clock import FakeClock
from tests.waiting import until


class Manager:
    """What the plugin manager works with: registrations of sockets named silent* never answer."""

    def __init__(self) -> None:
        self.registered: set[str] = set()
        self.asking = self.most = 0

    async def info(self, socket: SocketFile) -> PluginInfo:
        name = Path(socket.path).stem
        self.asking += 1
        self.most = max(self.most, self.asking)
        try:
            if name.startswith("silent"):
                await asyncio.sleep(0.05)
                raise PluginError("no answer", code="DEADLINE_EXCEEDED")
            return PluginInfo("CSIPlugin", name, socket.path)
        finally:
            self.asking -= 1

    async def notify(self, socket: SocketFile, error: str) -> None: ...

    def validate(self, info: PluginInfo) -> None: ...

    async def register(self, info: PluginInfo) -> None:
        self.registered.add(info.name)

    async def deregister(self, info: PluginInfo) -> None: ...


def _listen(path: Path) -> None:
    with sockets.socket(sockets.AF_UNIX) as made:
        made.bind(str(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "r"
    made.mkdir()
    return made


async def test_a_folder_full_of_junk(folder: Path) -> None:
    for number in range(200):
        _listen(folder / f"silent{number}.sock")
        os.mkfifo(folder / f"pipe{number}")
        (folder / f"link{number}").symlink_to("/dev/zero")
        (folder / f"loop{number}").symlink_to(folder)
        (folder / f"file{number}").touch()
    os.mknod(folder / "device", 0o600)
    made, found = Manager(), PluginSockets(str(folder))
    task = asyncio.create_task(PluginManager(found, made, {"CSIPlugin": made}, FakeClock()).run())
    await until(lambda: made.most)
    _listen(folder / "zz.sock")
    await until(lambda: "zz" in made.registered, 20)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    found.close()
    assert made.most <= 32


@pytest.fixture
async def answering(tmp_path: Path) -> AsyncIterator[Any]:
    servers = []

    async def start(answer: dict[str, Any] | None) -> SocketFile:
        path = str(tmp_path / "s.sock")

        async def info(request: Any) -> Any:
            if answer is None:
                await asyncio.Event().wait()
            return answer

        servers.append(await serve(path, [REGISTRATION.handler("Registration", {"GetInfo": info})]))
        return SocketFile(path)

    yield start
    for server in servers:
        await server.stop(None)


_WELL = {"type": "CSIPlugin", "name": "drv", "endpoint": "/p/drv.sock", "supported_versions": ["1.0.0"]}


@pytest.mark.parametrize("size", [100_000, 15 << 20])
async def test_a_huge_answer_of_get_info(answering: Any, size: int) -> None:
    socket = await answering({**_WELL, "name": "x" * size})
    with pytest.raises(PluginError) as found:
        await RegistrationClient().info(socket)
    assert found.value.code == grpc.StatusCode.RESOURCE_EXHAUSTED.name
    assert len(str(found.value)) < 1000


async def test_a_plain_answer_of_get_info(answering: Any) -> None:
    info = await RegistrationClient().info(await answering(_WELL))
    check_info(info)
    assert info.name == "drv"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"name": "../../etc"}, id="a path as its name"),
        pytest.param({"name": ".."}, id="dots as its name"),
        pytest.param({"name": "a/b"}, id="a slash in its name"),
        pytest.param({"name": "drv\n"}, id="a line feed"),
        pytest.param({"name": "drv\x00"}, id="NUL"),
        pytest.param({"name": ""}, id="no name"),
        pytest.param({"name": "x" * 300}, id="a long name"),
        pytest.param({"type": "CSI\nPlugin"}, id="type"),
        pytest.param({"endpoint": "relative.sock"}, id="relative endpoint"),
        pytest.param({"endpoint": "/p/../../run/containerd.sock"}, id="endpoint with dots"),
        pytest.param({"endpoint": "/" + "p" * 200}, id="long endpoint"),
        pytest.param({"versions": ("1.0.0",) * 1000}, id="many versions"),
        pytest.param({"versions": ("1.\n",)}, id="a version with a line feed"),
    ],
)
def test_info_that_is_refused(change: dict[str, Any]) -> None:
    fields = {"type": "CSIPlugin", "name": "drv", "endpoint": "/p/drv.sock", "versions": ("1.0.0",)}
    with pytest.raises(Invalid) as found:
        check_info(PluginInfo(**{**fields, **change}))
    assert len(str(found.value)) < 600 and str(found.value).isprintable()


@pytest.mark.parametrize(
    "info",
    [
        pytest.param(PluginInfo("DevicePlugin", "acme.com/gpu", "/d/gpu.sock", ("v1beta1",)), id="devices"),
        pytest.param(PluginInfo("CSIPlugin", "Hostpath_1.csi.k8s.io", "/p/s.sock", ("1.0.0",)), id="CSI"),
        pytest.param(PluginInfo("DRAPlugin", "gpu.example.com", "/p/s.sock", ("v1.DRAPlugin",)), id="DRA"),
    ],
)
def test_info_that_is_taken(info: PluginInfo) -> None:
    check_info(info)
