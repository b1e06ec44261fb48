"""The registry and the seed with a separate real containerd (needs root and overlayfs; it is built if missing)."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from cri_api.v1 import api_pb2, api_pb2_grpc

from controlplane.binaries.work import ensure
from controlplane.images.edge import seed
from controlplane.images.edge.archive import write_archive, write_layer
from controlplane.images.edge.registry import catalogue, hosts_toml, serving
from controlplane.images.edge.seed import seed_containerd_root
from controlplane.images.model.oci import RunConfig, file, make_image
from nodelib.command import Completed, run
from nodelib.errors import Conflict, Permanent

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="containerd's overlayfs snapshotter needs root"),
]

NAME = "registry.k8s.io/nodewright/small:1.0"
CONFIG = 'version = 3\nroot = "{root}"\nstate = "{state}"\n[grpc]\n  address = "{state}/c.sock"\n'


@dataclass
class Containerd:
    state: Path
    binary: Path

    async def ctr(self, *words: str) -> Completed:
        argv = [str(self.binary.with_name("ctr")), "-a", str(self.state / "c.sock"), "-n", "k8s.io", *words]
        return await run(argv, timeout=60)


@pytest.fixture(scope="module")
def cache() -> Path:
    return Path(os.environ.get("NODEWRIGHT_CACHE", Path.home() / ".cache/nodewright"))


@pytest.fixture(scope="module")
def binary(cache: Path) -> Path:
    return ensure(["containerd", "ctr"], cache_dir=cache).path("containerd")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "small-1.0-key"
    folder.mkdir()
    layer = write_layer([file("bin/a", "text", 0o4755)], folder / "layer", compress=False)
    image = make_image([NAME], RunConfig(cmd=("/bin/a",)), [layer], "amd64")
    write_archive(image, {layer.digest: folder / "layer"}, folder / "image.tar")
    return folder / "image.tar"


@pytest.fixture
async def containerd(tmp_path: Path, binary: Path) -> AsyncIterator[Containerd]:
    async for instance in started(tmp_path / "root", binary):
        yield instance


async def started(root: Path, binary: Path) -> AsyncIterator[Containerd]:
    state = Path(tempfile.mkdtemp(prefix="nw-containerd-"))  # short: a unix socket's path has 107 bytes at most
    (state / "config.toml").write_text(CONFIG.format(root=root, state=state))
    with (state / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            str(binary), "--config", str(state / "config.toml"), stdout=log, stderr=log
        )
    instance = Containerd(state, binary)
    try:
        async with asyncio.timeout(30):
            while not (state / "c.sock").exists():
                assert process.returncode is None, (state / "log").read_text()
                await asyncio.sleep(0.02)
        yield instance
    finally:
        process.terminate()
        await process.wait()
        shutil.rmtree(state)


async def test_a_pull_from_the_registry(containerd: Containerd, archive: Path, tmp_path: Path) -> None:
    async with serving(catalogue([archive]), "127.0.0.1", 0) as port:
        hosts = tmp_path / "certs.d/registry.k8s.io"
        hosts.mkdir(parents=True)
        (hosts / "hosts.toml").write_text(hosts_toml("registry.k8s.io", f"http://127.0.0.1:{port}", fallback=False))
        await containerd.ctr("images", "pull", "--hosts-dir", str(hosts.parent), NAME)
    assert NAME in (await containerd.ctr("images", "ls", "-q")).text.split()
    checked = (await containerd.ctr("images", "check", "-q", f"name=={NAME}")).text.split()
    assert checked == [NAME]


async def test_a_seeded_root_holds_the_images_and_clones_are_independent(
    archive: Path, binary: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        seed_containerd_root(tmp_path / name, {NAME: archive}, containerd=binary, cache_dir=tmp_path / "cache")
    async for first in started(tmp_path / "one", binary):
        await first.ctr("images", "rm", "--sync", *(await first.ctr("images", "ls", "-q")).text.split())
        assert (await first.ctr("images", "ls", "-q")).text == ""
    async for second in started(tmp_path / "two", binary):
        names = (await second.ctr("images", "ls", "-q", 'labels."io.cri-containerd.image"==managed')).text.split()
        assert NAME in names
        assert any(name.startswith("registry.k8s.io/nodewright/small@sha256:") for name in names)
        snapshots = (await second.ctr("snapshots", "ls")).text
        assert "Committed" in snapshots
    files = list(tmp_path.glob("two/io.containerd.snapshotter.v1.overlayfs/snapshots/*/fs/bin/a"))
    assert [oct(path.stat().st_mode) for path in files] == ["0o104755"]


async def test_a_seed_holds_layers_unpacked_only_and_containerd_lists_them(
    archive: Path, binary: Path, tmp_path: Path
) -> None:
    seed_containerd_root(tmp_path / "one", {NAME: archive}, containerd=binary, cache_dir=tmp_path / "cache")
    blobs = tmp_path / "one/io.containerd.content.v1.content/blobs/sha256"
    assert not [blob for blob in blobs.iterdir() if not blob.read_bytes().startswith(b"{")]
    async for containerd in started(tmp_path / "one", binary):
        channel = grpc.aio.insecure_channel(f"unix:{containerd.state / 'c.sock'}")
        async with channel:
            answer = await api_pb2_grpc.ImageServiceStub(channel).ListImages(api_pb2.ListImagesRequest())
        assert [(list(image.repo_tags), image.size > 0) for image in answer.images] == [([NAME], True)]
        unpacked = (await containerd.ctr("images", "check", f"name=={NAME}")).text
        assert unpacked.splitlines()[-1].endswith("true"), unpacked


def test_a_seed_that_is_not_made_says_what_containerd_says(
    archive: Path, binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seed, "_TRIES", 20)
    with pytest.raises(Permanent, match="did not take the images over") as caught:  # more are wanted than it holds
        images = {f"{NAME}-{number}": archive for number in range(9)}
        seed_containerd_root(tmp_path / "root", images, containerd=binary, cache_dir=tmp_path / "cache")
    assert "DEPRECATION" not in caught.value.message and len(caught.value.message.splitlines()) <= 6


def test_a_root_in_use_is_not_touched(archive: Path, binary: Path, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used/file").write_text("mine")
    with pytest.raises(Conflict, match="is not empty"):
        seed_containerd_root(tmp_path / "used", {NAME: archive}, containerd=binary, cache_dir=tmp_path / "cache")
    assert (tmp_path / "used/file").read_text() == "mine"
