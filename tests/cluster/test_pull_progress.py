"""The progress of a pull, with a real containerd and a registry that sends half of a layer and then waits."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler

from agent.common.model.errors import PluginError
from agent.images.edge.image_content import ImageContent
from agent.images.work.pull_progress import PullWatcher
from controlplane.binaries.work import ensure
from controlplane.images.edge.archive import write_archive, write_layer
from controlplane.images.edge.registry import Catalogue, application, catalogue, hosts_toml
from controlplane.images.model.oci import RunConfig, file, make_image
from nodelib.clock import SystemClock
from nodelib.command import run
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd's overlayfs snapshotter needs root"),
]

HOST = "registry.k8s.io"
NAME = f"{HOST}/nodewright/slow:1.0"
CONFIG = """version = 3
root = "{base}/root"
state = "{base}/state"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.nri.v1.nri"]
[grpc]
  address = "{base}/c.sock"
"""
MIB = 1 << 20
SENT = 2 * MIB


class SlowRegistry:
    """Of the blob `slow` the first SENT bytes come at once, the rest after `go`."""

    def __init__(self, served: Catalogue, slow: str) -> None:
        manifest = served.names[NAME]["digest"]
        self.total = sum(blob.size for digest, blob in served.blobs.items() if digest != manifest)
        self._slow, self._blob = slow, served.blobs[slow]
        self.rest = self._blob.size - SENT
        self.go = asyncio.Event()
        self.port = 0
        self.app = application(served)
        self.app.middlewares.append(self._held)

    @web.middleware
    async def _held(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not request.path.endswith(self._slow) or request.method != "GET":
            return await handler(request)
        with self._blob.archive.open("rb") as archive:
            archive.seek(self._blob.offset)
            data = archive.read(self._blob.size)
        response = web.StreamResponse()
        response.content_length = len(data)
        await response.prepare(request)
        await response.write(data[:SENT])
        await self.go.wait()
        await response.write(data[SENT:])
        return response


@pytest.fixture
async def registry(tmp_path: Path) -> AsyncIterator[SlowRegistry]:
    contents = {"a": os.urandom(MIB), "b": os.urandom(4 * MIB)}
    layers = {name: write_layer([file(name, data)], tmp_path / name, compress=False) for name, data in contents.items()}
    image = make_image([NAME], RunConfig(cmd=("/a",)), list(layers.values()), "amd64")
    archive = tmp_path / "image.tar"
    write_archive(image, {layer.digest: tmp_path / name for name, layer in layers.items()}, archive)
    slow = SlowRegistry(catalogue([archive]), layers["b"].digest)
    runner = web.AppRunner(slow.app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    slow.port = runner.addresses[0][1]
    yield slow
    slow.go.set()
    await runner.cleanup()


@dataclass(frozen=True)
class Containerd:
    base: Path
    ctr: Path

    @property
    def socket(self) -> Path:
        return self.base / "c.sock"

    async def pull(self, *ways: str) -> None:
        hosts = str(self.base / "certs.d")
        argv = [
            str(self.ctr),
            "-a",
            str(self.socket),
            "-n",
            "k8s.io",
            "images",
            "pull",
            *ways,
            "--hosts-dir",
            hosts,
            NAME,
        ]
        await run(argv, timeout=60)


@pytest.fixture
async def containerd(registry: SlowRegistry) -> AsyncIterator[Containerd]:
    cache = Path(os.environ.get("NODEWRIGHT_CACHE", Path.home() / ".cache/nodewright"))
    binary = ensure(["containerd", "ctr"], cache_dir=cache).path("containerd")
    base = Path(tempfile.mkdtemp(prefix="nw-pull-"))
    hosts = base / "certs.d" / HOST
    hosts.mkdir(parents=True)
    (hosts / "hosts.toml").write_text(hosts_toml(HOST, f"http://127.0.0.1:{registry.port}", fallback=False))
    (base / "config.toml").write_text(CONFIG.format(base=base))
    with (base / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(binary), "--config", str(base / "config.toml"), stdout=log, stderr=log
        )
    try:
        yield Containerd(base, binary.with_name("ctr"))
    finally:
        process.terminate()
        await process.wait()
        shutil.rmtree(base)


@pytest.mark.parametrize("ways", [(), ("--local",)], ids=["transfer service", "client pull"])
async def test_a_pull_is_followed_byte_for_byte(
    containerd: Containerd, registry: SlowRegistry, ways: tuple[str, ...]
) -> None:
    """By ctr, in the two ways in which containerd's CRI pulls, and in its namespace."""
    content, reports = ImageContent(f"unix://{containerd.socket}"), list[str]()
    watch = PullWatcher(content, SystemClock())

    async def answers() -> bool:
        try:
            return not await content.under_way()
        except PluginError:
            return False

    async def all_but_the_rest() -> bool:
        assert not pulled.done(), pulled
        await watch.refresh()
        found = watch.progress("one")
        return found.total > 0 and (found.total, found.total - found.done) == (registry.total, registry.rest)

    try:
        await until(answers, 30)
        async with watch.watching("one", NAME, reports.append):
            pulled = asyncio.create_task(containerd.pull(*ways))
            await until(all_but_the_rest, 30)
            registry.go.set()
            await asyncio.wait_for(pulled, 60)
        assert watch.progress("one").total == 0, "a pull that is over has no progress"
    finally:
        await watch.close()
