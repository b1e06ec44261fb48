"""The programs of our own in two images of upstream's CSI specs. `up --images conformance` builds them."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from agent.common.model.errors import PluginError
from agent.plugins.edge.rpc import PluginClient
from controlplane.binaries.model import TABLE
from controlplane.binaries.work import key_of
from controlplane.cluster.edge.roots import cache_root
from nodelib.json_values import Json
from nodelib.plugin_apis.csi import CSI
from nodelib.plugin_apis.registration import REGISTRATION
from tests.waiting import until, until_sync

_FOLDER = Path(cache_root(), "bin", key_of(TABLE["hostpathplugin"]))
_DRIVER, _REGISTRAR = _FOLDER / "hostpathplugin", _FOLDER / "csi-node-driver-registrar"
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not _REGISTRAR.exists(), reason="not built yet: `up --images conformance` does it"),
]
_NAME = "csi-mock-test"
_MOUNT: Json = {"mount": {}, "access_mode": {"mode": 1}}


class Program:
    """A process and what it has logged."""

    def __init__(self, argv: list[str]) -> None:
        self.process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line)

    def stop(self) -> int:
        self.process.terminate()
        return self.ended()

    def ended(self) -> int:
        status = self.process.wait(30)
        self._reader.join()
        return status


@contextmanager
def running(*argv: str | Path) -> Iterator[Program]:
    made = Program([str(word) for word in argv])
    try:
        yield made
    finally:
        made.process.kill()
        made.ended()


def ask(path: Path, method: str, *, api: Any = CSI, **fields: Any) -> Json:
    """The answer, once the socket is served."""

    async def call() -> Json:
        await until(path.exists)
        client = PluginClient(api, "driver", str(path))
        try:
            return await client.call(method, fields, timeout=30)
        finally:
            await client.close()

    return asyncio.run(call())


def calls_of(program: Program) -> list[Json]:
    """What upstream's specs read in the log of the driver's pod."""
    found = (line.partition("gRPCCall:")[2] for line in program.lines)
    return [json.loads(text) for text in found if text]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_the_driver_makes_folders_and_logs_calls_as_the_specs_read_them(tmp_path: Path) -> None:
    path, target = tmp_path / "csi.sock", tmp_path / "target"
    arguments = ("-v=5", "--nodeid=n", f"--endpoint={path}", "--statedir=/x", "--drivername=other")
    with running(_DRIVER, *arguments, f"--drivername={_NAME}", "--attach-limit", "2") as driver:
        assert ask(path, "Identity.GetPluginInfo")["name"] == _NAME
        assert ask(path, "Node.NodeGetInfo")["max_volumes_per_node"] == 2
        inline = {"volume_id": "inline", "target_path": str(target)}
        context = {"csi.storage.k8s.io/ephemeral": "true"}
        ask(path, "Node.NodePublishVolume", **inline, volume_context=context, volume_capability=_MOUNT)
        assert target.is_dir()
        ask(path, "Node.NodeUnpublishVolume", **inline)
        assert not target.exists()
        with pytest.raises(PluginError):
            ask(path, "Node.NodeUnpublishVolume", **inline)
        assert driver.stop() == 0
    calls = calls_of(driver)
    assert [one["Method"].rpartition("/")[2] for one in calls] == [
        *("GetPluginInfo", "NodeGetInfo", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnpublishVolume")
    ]
    assert calls[2]["Request"]["volume_context"] == context
    assert [one["FullError"] and one["FullError"]["code"] for one in calls] == [None] * 4 + [5]  # NotFound


def test_a_volume_that_nobody_attached_is_staged_and_published(tmp_path: Path) -> None:
    """A CSIDriver may be changed while its driver still attaches."""
    path, stage = tmp_path / "csi.sock", tmp_path / "stage"
    stage.mkdir()
    with running(_DRIVER, "-v=5", f"--endpoint={path}", f"--drivername={_NAME}", "--enable-attach"):
        asked = {"volume_capabilities": [_MOUNT], "capacity_range": {"required_bytes": 1 << 20}}
        number = ask(path, "Controller.CreateVolume", name="one", **asked)["volume"]["volume_id"]
        volume = {"volume_id": number, "staging_target_path": str(stage), "volume_capability": _MOUNT}
        ask(path, "Node.NodeStageVolume", **volume)
        ask(path, "Node.NodePublishVolume", **volume, target_path=str(tmp_path / "target"))
        assert (tmp_path / "target").is_dir()


def test_the_proxy_joins_each_connection_with_the_oldest_that_lives(tmp_path: Path) -> None:
    path, port = tmp_path / "csi.sock", free_port()
    path.touch()  # what a killed one leaves
    with running(_DRIVER, "-v=5", f"-endpoint={path}", f"-proxy-endpoint=tcp://:{port}"), ExitStack() as stack:
        outer = [stack.enter_context(connected(port)) for _ in range(3)]
        outer[0].sendall(b"goodbye")
        outer[0].close()
        inner = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(2)]
        for number, (here, there) in enumerate(zip(inner, outer[1:], strict=True)):
            here.connect(str(path))
            there.sendall(b"settings %d" % number)
            assert here.recv(64) == b"settings %d" % number
            here.sendall(b"call %d" % number)
            assert there.recv(64) == b"call %d" % number
        outer[1].close()
        assert inner[0].recv(64) == b""
        inner[1].close()
        assert outer[2].recv(64) == b""


def connected(port: int) -> socket.socket:
    """A connection, once the program listens."""

    def tried() -> socket.socket | None:
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), timeout=30)
        return None

    found = until_sync(tried)
    assert isinstance(found, socket.socket)
    return found


def test_the_registrar_waits_for_the_driver_and_ends_when_it_is_refused(tmp_path: Path) -> None:
    path, registered, port = tmp_path / "csi.sock", tmp_path / f"{_NAME}-reg.sock", free_port()
    arguments = [f"--csi-address={path}", "--kubelet-registration-path=/there/csi.sock", f"--http-endpoint=:{port}"]
    with (
        running(_REGISTRAR, "--v=5", *arguments, f"--plugin-registration-path={tmp_path}") as registrar,
        running(_DRIVER, f"--endpoint={path}", f"--drivername={_NAME}"),
    ):
        info = ask(registered, "Registration.GetInfo", api=REGISTRATION)
        assert info == {
            "type": "CSIPlugin",
            "name": _NAME,
            "endpoint": "/there/csi.sock",
            "supported_versions": ["1.0.0"],
        }
        ask(registered, "Registration.NotifyRegistrationStatus", api=REGISTRATION, plugin_registered=True)
        url = f"http://127.0.0.1:{port}/healthz"
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert answer.status == 200
        renamed = registered.rename(tmp_path / "renamed")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(url, timeout=30)
        renamed.rename(registered)
        with suppress(PluginError):  # it may be gone before it has answered
            refusal = {"plugin_registered": False, "error": "no such version"}
            ask(registered, "Registration.NotifyRegistrationStatus", api=REGISTRATION, **refusal)
        assert registrar.ended() == 1
    assert f"the kubelet does not register driver {_NAME}: no such version" in registrar.lines[-1]
    assert not registered.exists()
