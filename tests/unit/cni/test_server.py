"""The CNI server and clients that send nonsense, nothing, or read no answer. Real sockets, no network."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cni import server as cni_server
from cni.node_links import ensure_bridge
from cni.operations import Operations
from cni.plan import node
from cni.ports import Store
from cni.server import CniServer
from cni.spec.configuration import NetConf, address_range
from nodelib.errors import Permanent
from tests.fakes.fake_netlink import FakeKernel, FakePorts
from tests.fakes.fake_store import FakeStore


def _no_store(_: NetConf) -> Store:
    raise AssertionError("no call of these tests needs an address")


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[CniServer, str]]:
    async def nothing() -> None:
        return None

    async def ready() -> str:
        return ""

    path = str(folder / "cni.sock")
    operations = Operations(FakeKernel().open, _no_store, lambda *_: None, lambda: 0.0, FakePorts())
    one = CniServer(path, operations, sync_ports=nothing, waiting=ready)
    one.listen()
    task = asyncio.create_task(one.serve())
    try:
        yield one, path
    finally:
        task.cancel()
        await asyncio.wait_for(one.close(), 60)


def connected(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.connect(path)
    client.setblocking(False)
    return client


async def asked(client: socket.socket, stdin: bytes, *lines: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(client, b"\0".join([b"CNI_COMMAND=VERSION", *lines]) + b"\0\0" + stdin)
    client.shutdown(socket.SHUT_WR)
    answer = b""
    while part := await loop.sock_recv(client, 1 << 16):
        answer += part
    return answer


async def test_nobody_but_root_may_connect(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, path):
        assert os.stat(path).st_mode & 0o777 == 0o600


async def test_a_client_that_reads_no_answer_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer larger than the socket's buffer would wait for it for ever, and so would the server's end."""
    monkeypatch.setattr(cni_server, "_ANSWER_SECONDS", 0.2)
    async with serving(tmp_path) as (_, path):
        client = connected(path)
        stdin = json.dumps({"cniVersion": "9" * (4 << 20)}).encode()
        await asyncio.get_running_loop().sock_sendall(client, b"CNI_COMMAND=VERSION\0\0" + stdin)
        client.shutdown(socket.SHUT_WR)
        with connected(path) as other:
            assert b"supportedVersions" in await asyncio.wait_for(asked(other, b""), 30)
    client.close()


async def test_clients_that_say_nothing_hold_up_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cni_server, "_REQUEST_SECONDS", 0.2)
    async with serving(tmp_path) as (_, path):
        silent = [connected(path) for _ in range(100)]
        with connected(path) as other:
            assert b"supportedVersions" in await asyncio.wait_for(asked(other, b""), 30)
        for one in silent:
            one.close()


@pytest.mark.parametrize(
    "stdin",
    [
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
        b'{"cniVersion":' + b"9" * 100_000 + b"}",
        b"\xff" * 100,
        b"{" + b'"a":1e999,' * 9,
    ],
    ids=["deep list", "deep object", "huge number", "no text", "cut off"],
)
async def test_bombs_are_answered(tmp_path: Path, stdin: bytes) -> None:
    async with serving(tmp_path) as (_, path):
        with connected(path) as client:
            answer = await asyncio.wait_for(asked(client, stdin), 30)
        assert answer[:1] == b"1"
        assert json.loads(answer[1:])["code"] == 6


async def test_descriptors_that_a_client_passes_are_closed(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, path):
        before = len(os.listdir("/proc/self/fd"))
        with connected(path) as client, open("/dev/null") as null:
            for _ in range(50):
                socket.send_fds(client, [b"CNI_COMMAND=VERSION\0"], [null.fileno()] * 4)
                await asyncio.sleep(0)
            assert b"supportedVersions" in await asyncio.wait_for(asked(client, b""), 30)
        assert len(os.listdir("/proc/self/fd")) <= before + 1


async def test_more_than_the_largest_request_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, path):
        with connected(path) as client, pytest.raises(OSError):
            await asyncio.wait_for(asked(client, b" " * (cni_server._LARGEST + (1 << 20))), 60)
        with connected(path) as other:
            assert b"supportedVersions" in await asyncio.wait_for(asked(other, b""), 30)


async def test_the_ports_of_a_pod_that_is_refused_lead_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of another pod that starts meanwhile are written with its own, and its address is another pod's soon."""
    kernel, store = FakeKernel(), FakeStore()
    operations = Operations(kernel.open, lambda _: store, lambda *_: None, lambda: 0.0, FakePorts())
    with kernel.open() as links:
        ensure_bridge(links, node.bridge("nw0", [address_range({"subnet": "10.1.0.0/29"})], 1500))
    written: list[int] = []

    async def write() -> None:
        written.append(sum(len(one.port_mappings) for one in store.attachments()))

    async def refuse(*_: object) -> None:
        await write()  # as an ADD of another pod does
        raise Permanent("no policies")

    async def ready() -> str:
        return ""

    monkeypatch.setattr(cni_server, "protect", refuse)
    one = CniServer("/nowhere", operations, sync_ports=write, waiting=ready)
    mapping = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}
    conf = {
        "cniVersion": "1.1.0",
        "name": "net",
        "bridge": "nw0",
        "ipam": {"subnet": "10.1.0.0/29"},
        "runtimeConfig": {"portMappings": [mapping]},
    }
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "/n", "CNI_PATH": "/opt"}
    answer = await one.answer(env, json.dumps(conf).encode(), kernel.new_namespace(), lambda: True)
    assert answer.failed and "no policies" in str(answer.failed)
    assert store.attachments() == [] and written == [1, 0]
