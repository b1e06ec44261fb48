"""The kubelet server with a real containerd: exec, attach, port-forward, logs through a rotation, statistics.

No API server: the pods are made over CRI, on the host's network, and the pod registry is one in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from agent.build.server import server_edges
from agent.common.model.pods import ObservedPod
from agent.common.work.gate import Gate
from agent.logs.edge import log_folder
from agent.logs.model import LogSettings
from agent.logs.work import LogRotation
from agent.runtime.edge.cri import Cri
from agent.server.model import AuthSettings, ServerSettings
from agent.server.work import KubeletServer, ServedNode, ServerDeps, start
from agent.stats.edge import machine
from agent.stats.edge.cgroups import CgroupReader
from agent.stats.model import StatsSettings
from agent.stats.work.provider import StatsProvider, StatsSources
from controlplane.binaries.work import ensure
from controlplane.images.work import binaries_for, ensure_images
from controlplane.machine.edge import oom
from nodelib.clock import SystemClock
from nodelib.command import run
from tests.builders.pods import container, container_status, pod
from tests.fakes.agent_view import FakeView

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root"),
]

_BUSYBOX = "registry.k8s.io/e2e-test-images/busybox:1.37.0-2"
_PAUSE = "registry.k8s.io/pause:3.10.2"
_UID = "0f0e0d0c-0000-4000-8000-00000000abcd"
_HOST = {"network": 2, "pid": 1, "ipc": 0}  # runtime/v1 NamespaceMode: NODE, CONTAINER, POD
_CGROUP = "/nodewright-server-test"
_CONFIG = """version = 3
root = "{state}/root"
state = "{state}/run"
[grpc]
  address = "{state}/c.sock"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = {restrict}
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["{state}"]
    conf_dir = "{state}/none"
"""
_SCRIPT = (
    "echo ready; (i=0; while :; do echo tick $i; i=$((i+1)); sleep 0.05; done) & "
    "while read line; do echo got $line; done; wait"
)


@dataclass
class Node:
    """One containerd, one pod with one container, one server."""

    state: Path
    cri: Cri
    view: FakeView
    server: KubeletServer
    rotation: LogRotation
    container: str

    def url(self, path: str) -> str:
        return f"https://127.0.0.1:{self.server.addresses['kubelet'][1]}{path}"


@pytest.fixture(scope="module")
def parts() -> tuple[Mapping[str, Path], list[Path]]:
    """Programs by name, archives of the images."""
    cache = Path(os.environ.get("NODEWRIGHT_CACHE", Path.home() / ".cache/nodewright"))
    names = (_PAUSE, _BUSYBOX)
    programs = ("containerd", "containerd-shim-runc-v2", "runc", "ctr")
    binaries = ensure([*programs, *binaries_for(names)], cache_dir=cache)
    images = ensure_images(names, cache_dir=cache, binaries=binaries)
    return {name: binaries.path(name) for name in programs}, list(images.values())


@pytest.fixture
async def node(parts: tuple[Mapping[str, Path], list[Path]]) -> AsyncIterator[Node]:
    state = Path(tempfile.mkdtemp(prefix="nw-server-"))  # short: a unix socket's path has 107 bytes at most
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, state, ignore_errors=True)
        cri = await _containerd(stack, state, *parts)
        container = await _run_pod(stack, state, cri)
        view = await _view(cri)
        clock = SystemClock()
        sources = StatsSources(view, cri, cri, CgroupReader(), machine)
        stats = StatsProvider(StatsSettings("node-1", _CGROUP, str(state), str(state / "logs")), sources, clock)
        auth = AuthSettings(True, "", False, 1, "AlwaysAllow", 1, 1)
        settings = ServerSettings(
            True, "127.0.0.1", -1, 0, "", "", "", (), "127.0.0.1", 0, True, True, 3600, auth, local_socket=""
        )
        served = ServedNode("node-1", str(state / "pki"), addresses=("127.0.0.1",))
        server = await start(
            ServerDeps(
                settings,
                served,
                view,
                cri,
                None,
                CollectorRegistry(),
                lambda: "",
                server_edges(),
                commands=Gate(),
                stats=stats,
            ),
            clock,
        )
        stack.push_async_callback(server.close)
        rotation = LogRotation(
            LogSettings(1, 4, 1, 10), cri, log_folder, lambda: view.observations[_UID].containers, clock
        )
        yield Node(state, cri, view, server, rotation, container)


async def _containerd(
    stack: contextlib.AsyncExitStack, state: Path, programs: Mapping[str, Path], images: list[Path]
) -> Cri:
    restrict = str(not oom.may_lower_score()).lower()
    (state / "config.toml").write_text(_CONFIG.format(state=state, pause=_PAUSE, restrict=restrict))
    log = stack.enter_context((state / "log").open("wb"))
    process = await asyncio.create_subprocess_exec(
        str(programs["containerd"]),
        "--config",
        str(state / "config.toml"),
        stdout=log,
        stderr=log,
        env={**os.environ, "PATH": ":".join([*{str(one.parent): "" for one in programs.values()}, os.environ["PATH"]])},
    )

    async def stop() -> None:
        process.terminate()
        await process.wait()

    stack.push_async_callback(stop)
    async with asyncio.timeout(60):
        while not (state / "c.sock").exists():
            assert process.returncode is None, (state / "log").read_text()
            await asyncio.sleep(0.02)
    for image in images:
        ctr = [str(programs["ctr"]), "-a", str(state / "c.sock"), "-n", "k8s.io", "images", "import", str(image)]
        await run(ctr, timeout=120)
    cri = Cri(str(state / "c.sock"))
    stack.push_async_callback(cri.close)
    return cri


async def _run_pod(stack: contextlib.AsyncExitStack, state: Path, cri: Cri) -> str:
    labels = {
        "io.kubernetes.pod.uid": _UID,
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "ns",
    }
    folder = state / "logs" / f"ns_web_{_UID}"
    (folder / "main").mkdir(parents=True)
    sandbox_config: dict[str, Any] = {
        "metadata": {"name": "web", "uid": _UID, "namespace": "ns", "attempt": 0},
        "log_directory": str(folder),
        "labels": labels,
        "linux": {
            "cgroup_parent": f"{_CGROUP}/pod{_UID}",
            "security_context": {"namespace_options": _HOST},
        },
    }
    sandbox = await cri.run_sandbox(sandbox_config)
    stack.push_async_callback(_remove, cri, sandbox)
    config = {
        "metadata": {"name": "main", "attempt": 0},
        "image": {"image": _BUSYBOX},
        "command": ["sh", "-c", _SCRIPT],
        "stdin": True,
        "log_path": "main/0.log",
        "labels": {**labels, "io.kubernetes.container.name": "main"},
        "linux": {"security_context": {"namespace_options": _HOST}},
    }
    container = await cri.create_container(sandbox, config, sandbox_config)
    await cri.start_container(container)
    return container


async def _remove(cri: Cri, sandbox: str) -> None:
    await cri.stop_sandbox(sandbox)
    await cri.remove_sandbox(sandbox)
    await run(["sh", "-c", f"find /sys/fs/cgroup -depth -type d -path '*{_CGROUP}*' -exec rmdir {{}} +"], check=False)


async def _view(cri: Cri) -> FakeView:
    view = FakeView()
    meta = {"namespace": "ns", "uid": _UID}
    view.by_uid[_UID] = pod(container(stdin=True), meta=meta, hostNetwork=True)
    (listed,) = await cri.list_containers(_UID)
    state = await cri.container_status(listed.id)
    view.observations[_UID] = ObservedPod(_UID, await cri.list_sandboxes(_UID), (state,))
    view.statuses[_UID] = {"containerStatuses": [container_status(containerID=f"containerd://{state.id}")]}
    return view


async def _messages(socket: aiohttp.ClientWebSocketResponse) -> dict[int, bytes]:
    """All that came, by channel, until the end."""
    channels: dict[int, list[bytes]] = {}
    async for message in socket:
        channels.setdefault(message.data[0], []).append(message.data[1:])
    return {channel: b"".join(chunks) for channel, chunks in channels.items()}


async def test_exec_with_stdin_and_exit_status(node: Node) -> None:
    command = "?command=sh&command=-c&command=read+x;echo+got+$x;echo+err+>%262;exit+3&input=1&output=1&error=1"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            node.url(f"/exec/ns/web/main{command}"), ssl=False, protocols=["v4.channel.k8s.io"]
        ) as socket,
    ):
        assert socket.protocol == "v4.channel.k8s.io"
        await socket.send_bytes(b"\x00hi\n")
        channels = await asyncio.wait_for(_messages(socket), 30)
    assert (channels[1], channels[2]) == (b"got hi\n", b"err\n")
    assert b'"reason":"NonZeroExitCode"' in channels[3]


async def test_ten_million_bytes_come_out_of_exec(node: Node) -> None:
    command = "?command=head&command=-c&command=10000000&command=/dev/zero&output=1"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            node.url(f"/exec/ns/web/{_UID}/main{command}"), ssl=False, protocols=["v4.channel.k8s.io"]
        ) as socket,
    ):
        channels = await asyncio.wait_for(_messages(socket), 60)
    assert len(channels[1]) == 10_000_000


async def test_the_runtime_does_not_speak_v5(node: Node) -> None:
    """If this fails, the node may declare ExtendWebSocketsToKubelet (see agent/server/work/streams.py)."""
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await session.ws_connect(
                node.url("/exec/ns/web/main?command=true&output=1"), ssl=False, protocols=["v5.channel.k8s.io"]
            )


async def test_attach_reaches_stdin(node: Node) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            node.url("/attach/ns/web/main?input=1&output=1"), ssl=False, protocols=["v4.channel.k8s.io"]
        ) as socket,
    ):
        await socket.send_bytes(b"\x00hello\n")
        seen = b""
        async with asyncio.timeout(30):
            while b"got hello\n" not in seen:
                seen += (await socket.receive_bytes())[1:]
        assert seen.count(b"got hello\n") == 1


async def test_port_forward_reaches_a_port_of_the_pods_network(node: Node) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"you said " + await reader.readline())
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with (
        listener,
        aiohttp.ClientSession() as session,
        session.ws_connect(
            node.url(f"/portForward/ns/web?port={port}"), ssl=False, protocols=["v4.channel.k8s.io"]
        ) as socket,
    ):
        await socket.send_bytes(b"\x00hi\n")
        seen = b""
        async with asyncio.timeout(30):
            while b"you said hi\n" not in seen:
                message = await socket.receive_bytes()
                seen += message[1:] if message[0] == 0 else b""
        assert seen.count(b"you said hi\n") == 1


async def test_logs_follow_through_rotations_to_the_end(node: Node) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(node.url("/containerLogs/ns/web/main?limitBytes=5"), ssl=False) as answer:
            assert await answer.read() == b"ready"
        async with session.get(node.url("/containerLogs/ns/web/main?follow=true"), ssl=False) as answer:
            for _ in range(3):
                await asyncio.sleep(1)
                assert await node.rotation.rotate_all() == 1
            await asyncio.sleep(0.5)
            await node.cri.stop_container(node.container, 0)
            ended = await node.cri.container_status(node.container)
            observed = node.view.observations[_UID]
            node.view.observations[_UID] = ObservedPod(_UID, observed.sandboxes, (ended,))
            text = await asyncio.wait_for(answer.text(), 30)
    ticks = [int(line.split()[1]) for line in text.splitlines() if line.startswith("tick")]
    assert ticks == list(range(len(ticks)))
    assert len(ticks) > 40
    folder = node.state / "logs" / f"ns_web_{_UID}" / "main"
    assert len([name for name in os.listdir(folder) if name.endswith(".gz")]) == 2


async def test_statistics_of_the_pod(node: Node) -> None:
    async with aiohttp.ClientSession() as session:
        async with session.get(node.url("/stats/summary"), ssl=False) as answer:
            (pod,) = (await answer.json())["pods"]
        async with session.get(node.url("/metrics/resource"), ssl=False) as answer:
            text = await answer.text()
    assert pod["podRef"] == {"name": "web", "namespace": "ns", "uid": _UID}
    assert pod["containers"][0]["memory"]["workingSetBytes"] > 0
    assert pod["containers"][0]["cpu"]["usageNanoCores"] > 0
    assert 'container_memory_working_set_bytes{container="main",namespace="ns",pod="web"}' in text
