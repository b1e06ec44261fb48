"""Nodes of `up` share the files of the images that they begin with, and none can change them for another one."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Cluster
from controlplane.machine.edge import process_one
from controlplane.supervisor.edge import units
from nodelib import mountinfo
from tests.builders.pods import BUSYBOX, container, manifest, sleeper
from tests.cluster.command_line import cli, differences, lent_or_raised, traces
from tests.cluster.image_archives import busybox_named
from tests.cluster.world import Object, World, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

NAME = "tlay"
_SNAPSHOTS = "io.containerd.snapshotter.v1.overlayfs/snapshots"
_WRITES = (
    'echo evil >>"$file"', 'echo evil >"$file"', 'chmod 777 "$file"', 'chown 1 "$file"', 'touch "$file"',
    'ln "$file" "${file%%/fs/*}/x"', 'echo evil >"${file%/*}/new"', 'mv "$file" "$file.x"', 'rm "$file"',
)  # fmt: skip


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """Two small nodes of their own: these tests remove their images and stop them."""
    before = traces(NAME)
    with lent_or_raised("NODEWRIGHT_TEST_LAYERS", NAME, "--no-uplink", timeout=1800) as cluster:
        yield cluster
    if not os.environ.get("NODEWRIGHT_TEST_LAYERS"):
        assert differences(before, traces(NAME)) == {}


def writer(node: str) -> Object:
    """A pod that is root in its container and no more, with the node's tree and containerd's folder."""
    paths = {"rootfs": "/", "images": "/var/lib/containerd"}
    box = container(
        script="trap 'exit 0' TERM; sleep 3600 & wait",
        volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in paths],
    )
    volumes = [{"name": name, "hostPath": {"path": path}} for name, path in paths.items()]
    return manifest(f"writes-{node}", box, nodeName=node, volumes=volumes)


def inside(cluster: Cluster, node: str) -> str:
    """containerd's folder of a node as the node's own processes see it."""
    return f"/proc/{process_one.alive(units.machine_lock(cluster.unit_dir(node)))}/root/var/lib/containerd"


def files_below(root: str | Path) -> dict[tuple[int, int], str]:
    """Every regular file, by device and inode."""
    found = {}
    for folder, _, names in os.walk(root):
        for path in (os.path.join(folder, name) for name in names):
            if os.path.isfile(path) and not os.path.islink(path):
                there = os.stat(path)
                found[there.st_dev, there.st_ino] = path
    return found


@dataclass(frozen=True)
class Written:
    """What can be written to a file."""

    content: bytes
    mode: int
    owner: tuple[int, int]
    time: int

    @classmethod
    def of(cls, path: str) -> Written:
        there = os.stat(path)
        owner = (there.st_uid, there.st_gid)
        return cls(Path(path).read_bytes(), stat.S_IMODE(there.st_mode), owner, there.st_mtime_ns)

    def restore(self, path: str) -> None:
        """A test that fails must not leave a cache that makes other clusters fail."""
        if Written.of(path) != self:
            Path(path).write_bytes(self.content)
            os.chmod(path, self.mode)
            os.chown(path, *self.owner)
            os.utime(path, ns=(self.time, self.time))


def harmless(path: str) -> bool:
    """No program of other clusters needs it while this test has changed it."""
    return path.endswith(("/etc/group", "/etc/passwd", "/etc/nsswitch.conf", ".txt", ".html"))


def layers_of(cluster: Cluster, node: str) -> list[str]:
    one = process_one.alive(units.machine_lock(cluster.unit_dir(node)))
    return [mount.path for mount in mountinfo.of_process(one) if f"/{_SNAPSHOTS}/" in mount.path]


async def test_a_host_path_cannot_change_the_images_of_another_node(world: World, shared_cluster: Cluster) -> None:
    seeds = files_below(Path(cache_root(), "seeds"))
    nodes = {name: files_below(inside(shared_cluster, name)) for name in ("node1", "node2")}
    shared = [one for one, path in nodes["node1"].items() if one in seeds and one in nodes["node2"] and harmless(path)]
    if not shared:
        pytest.skip("the cache is on another file system: each node has copies")
    file, others = nodes["node1"][shared[0]], [seeds[shared[0]], nodes["node2"][shared[0]]]
    before = Written.of(others[0])
    await world.run(writer("node1"))
    said = {}
    try:
        for base in ("/images", "/rootfs/var/lib/containerd"):
            for write in _WRITES:
                place = file.replace(inside(shared_cluster, "node1"), base)
                said[base, write] = await world.shell("writes-node1", f"file={place}; {{ {write}; }} 2>&1", check=False)
        assert [Written.of(path) for path in others] == [before, before]
    finally:
        before.restore(others[0])
    refused = ("Read-only file system", "Invalid cross-device link", "Cross-device link")
    assert {key: text for key, text in said.items() if not any(word in text for word in refused)} == {}


@pytest.mark.parametrize("node", ["node1", "node2"])
def test_no_file_that_others_have_is_writable_in_a_node(shared_cluster: Cluster, node: str) -> None:
    """Databases, blobs and whatever else is below containerd's folder are the node's own."""
    seeds, other = files_below(Path(cache_root(), "seeds")), "node2" if node == "node1" else "node1"
    theirs = seeds.keys() | files_below(inside(shared_cluster, other)).keys()
    here = files_below(inside(shared_cluster, node))
    assert [path for one, path in here.items() if one in theirs and os.access(path, os.W_OK)] == []


async def test_an_image_that_a_node_began_with_can_go_and_come_back(world: World, shared_cluster: Cluster) -> None:
    """containerd cannot remove a folder that is a mount; that holds nothing up, and the mounts go."""
    ctr = [shared_cluster.tools["ctr"], "-n", "k8s.io"]
    archive = world.folder("node2") / "again.tar"
    await asyncio.to_thread(busybox_named, BUSYBOX, archive)
    before = layers_of(shared_cluster, "node2")
    await asyncio.to_thread(cli, "unload", BUSYBOX, "--name", shared_cluster.name, "--node", "node2")
    left = (await world.in_node("node2", *ctr, "snapshots", "ls")).text.splitlines()[1:]

    async def let_go() -> bool:
        return len(layers_of(shared_cluster, "node2")) < len(before)

    await holds(let_go, "what containerd has removed is mounted no more", 90)
    await asyncio.to_thread(cli, "load", str(archive), "--name", shared_cluster.name, "--node", "node2")
    more = (await world.in_node("node2", *ctr, "snapshots", "ls")).text.splitlines()[1:]
    assert len(more) > len(left)
    await world.run(manifest("again", sleeper(imagePullPolicy="Never"), nodeName="node2"))
    await world.delete("again", grace=1)
    await world.gone("again")
    snapshots = Path(inside(shared_cluster, "node2"), _SNAPSHOTS)

    async def cleaned() -> bool:
        known = int((await world.in_node("node2", "sh", "-c", f"{' '.join(ctr)} snapshots ls | wc -l")).text) - 1
        return len(list(snapshots.iterdir())) == known

    await holds(cleaned, "nothing of a removed snapshot is left", 60)


async def test_after_stop_and_start_and_a_second_up_layers_are_as_before(world: World, shared_cluster: Cluster) -> None:
    before = {node: sorted(layers_of(shared_cluster, node)) for node in ("node1", "node2")}
    for command in ("up", "stop", "start"):
        await asyncio.to_thread(cli, command, "--name", shared_cluster.name, "--plain")
        if command != "stop":
            assert {node: sorted(layers_of(shared_cluster, node)) for node in before} == before
    test_no_file_that_others_have_is_writable_in_a_node(shared_cluster, "node1")
    await world.run(manifest("runs", sleeper(), nodeName="node1"))
