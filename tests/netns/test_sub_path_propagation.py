"""Sub paths over trees with mounts below: the node's own file systems are there before, during and after the pod.

Each test has a shared root, as systemd leaves it: what is unmounted in one place is unmounted in all its peers.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge.csi_disk import CsiDisk
from agent.volumes.edge.pod_disk import PodDisk
from agent.volumes.model.volumes import AtomicVolume, EmptyDir, FileProjection
from nodelib import mounts
from nodelib.cgroups import mounts_here
from tests.netns.mount_namespace import isolated

pytestmark = pytest.mark.netns

_MS_SHARED, _MS_REC = 1 << 20, 16384


class Node:
    """A file system of its own at `root`, shared; a host tree with a file system mounted in it; two pods."""

    def __init__(self, root: Path) -> None:
        self.root = root
        mounts.mount("node", str(root), "tmpfs")
        mounts.mount("", str(root), "", _MS_REC | _MS_SHARED)
        self.host, self.kubelet = root / "host", root / "kubelet"
        self.disk_dir = self.host / "data" / "disk"
        self.disk_dir.mkdir(parents=True)
        (self.host / "data" / "later").mkdir()
        (self.kubelet / "pods").mkdir(parents=True)
        mounts.mount("hostdisk", str(self.disk_dir), "tmpfs")
        (self.disk_dir / "precious").write_text("x")
        self.disk = PodDisk(str(self.kubelet))
        self.paths = PodPaths(str(self.kubelet), "11111111-1111-1111-1111-111111111111")
        self.other = PodPaths(str(self.kubelet), "aaaaaaaa-1111-1111-1111-111111111111")
        self.disk.set_up(self.paths, [])

    def bind(self, path: str = "data", *, volume: Path | None = None, index: int = 0, peers: bool = False) -> str:
        target = self.paths.sub_path("v", "c", index)
        return self.disk.bind_sub_path(str(volume or self.host), path, target, keeps_peers=peers)

    def table(self) -> list[str]:
        """The mount points and their propagation (the peer group as such has no fixed number)."""
        with open("/proc/self/mountinfo", encoding="utf-8") as file:
            lines = [line.split(" ") for line in file]
        return [f"{one[4]} {one[9]} {one[6].partition(':')[0]}" for one in lines if one[4].startswith(str(self.root))]


def test_a_pods_end_leaves_the_hosts_mounts(tmp_path: Path) -> None:
    """The mounts of the pod are gone with it, and nothing else is."""

    @isolated
    def run() -> None:
        node = Node(tmp_path)
        before = node.table()
        target = node.bind()
        assert Path(target, "disk", "precious").read_text() == "x"
        node.disk.tear_down(node.paths)
        assert node.table() == before
        assert (node.disk_dir / "precious").read_text() == "x"
        assert not os.path.exists(node.paths.pod)

    run()


@isolated
def test_what_is_mounted_later_on_the_host_is_seen_and_stays(tmp_path: Path) -> None:
    node = Node(tmp_path)
    target = node.bind()
    mounts.mount("later", str(node.host / "data" / "later"), "tmpfs")
    (node.host / "data" / "later" / "new").write_text("y")
    assert Path(target, "later", "new").read_text() == "y"
    node.disk.tear_down(node.paths)
    assert (node.host / "data" / "later" / "new").read_text() == "y"
    assert (node.disk_dir / "precious").exists()


@isolated
def test_what_is_unmounted_on_the_host_is_released_by_the_pod(tmp_path: Path) -> None:
    node = Node(tmp_path)
    target = node.bind()
    mounts.unmount(str(node.disk_dir))
    assert os.listdir(Path(target, "disk")) == []


@isolated
def test_unmounting_in_the_sub_path_never_reaches_the_host(tmp_path: Path) -> None:
    """Whoever does it: an administrator, the runtime, an older agent."""
    node = Node(tmp_path)
    target = node.bind()
    mounts.unmount(f"{target}/disk")
    mounts.unmount(target, mounts.MNT_DETACH)
    assert (node.disk_dir / "precious").exists()


@isolated
def test_a_busy_volume_of_another_pod_stays(tmp_path: Path) -> None:
    """hostPath /var/lib with subPath kubelet: the clone holds the other pods' tokens."""
    node = Node(tmp_path)
    secret = AtomicVolume("token", "kubernetes.io~secret", {"token": FileProjection(b"s", 0o600)}, True, 1 << 20)
    made = node.disk.set_up(node.other, [secret, EmptyDir("m", "Memory", 1 << 20)])
    before = node.table()
    node.bind("kubelet", volume=node.root)
    with open(f"{made['token'].path}/token", encoding="ascii") as used:
        node.disk.tear_down(node.paths)
        assert used.read() == "s"
    assert node.table() == before
    assert Path(made["token"].path, "token").read_text() == "s"
    # Mounted as before, so that it is still renewed.
    fresh = AtomicVolume("token", "kubernetes.io~secret", {"token": FileProjection(b"2", 0o600)}, True, 1 << 20)
    assert node.disk.update(node.other, [fresh]) == ["token"]


@isolated
def test_a_busy_sub_path_is_detached_without_the_hosts_mounts(tmp_path: Path) -> None:
    node = Node(tmp_path)
    before = node.table()
    target = node.bind()
    with open(f"{target}/disk/precious", encoding="ascii") as used:
        node.disk.tear_down(node.paths)
        assert used.read() == "x"
    assert node.table() == before


@isolated
def test_what_an_older_agent_left_in_the_peer_group_of_the_host(tmp_path: Path) -> None:
    """Also what an agent leaves that is killed between the bind and the change of its propagation."""
    node = Node(tmp_path)
    before = node.table()
    target = Path(node.paths.sub_path("v", "c", 0))
    target.mkdir(parents=True)
    mounts.mount(str(node.host / "data"), str(target), "", mounts.MS_BIND | mounts.MS_REC)
    with open(f"{target}/disk/precious", encoding="ascii"):
        node.disk.tear_down(node.paths)
    assert node.table() == before


@isolated
def test_what_an_older_agent_left_leaves_the_peer_group_at_the_next_start(tmp_path: Path) -> None:
    """A container that is started again; another one goes on using the sub path meanwhile."""
    node = Node(tmp_path)
    target, container = Path(node.paths.sub_path("v", "c", 0)), node.root / "container"
    for path in (target, container):
        path.mkdir(parents=True)
    mounts.mount(str(node.host / "data"), str(target), "", mounts.MS_BIND | mounts.MS_REC)
    mounts.mount(str(target), str(container), "", mounts.MS_BIND | mounts.MS_REC)
    mounts.mount("", str(container), "", mounts.MS_REC | mounts.MS_SLAVE)
    for _ in range(2):
        node.bind()
        assert len(mounts.mounts_below(str(target))) == 2
    mounts.mount("later", str(node.host / "data" / "later"), "tmpfs")
    assert mounts.mount_at(f"{container}/later") is not None and mounts.mount_at(f"{target}/later") is not None
    mounts.unmount(f"{target}/disk")
    assert (node.disk_dir / "precious").exists()


@isolated
def test_a_sub_path_that_is_bound_afresh_releases_the_old_one_only(tmp_path: Path) -> None:
    """The second start of a container, with its directory replaced meanwhile; the first bind by an older agent."""
    node = Node(tmp_path)
    target = Path(node.paths.sub_path("v", "c", 0))
    target.mkdir(parents=True)
    mounts.mount(str(node.host / "data"), str(target), "", mounts.MS_BIND | mounts.MS_REC)
    (node.host / "other").mkdir()
    node.bind("other")
    assert (node.disk_dir / "precious").exists()
    assert os.path.samefile(target, node.host / "other")
    assert len(mounts.mounts_below(str(target))) == 1


@isolated
def test_the_sub_paths_of_drivers(tmp_path: Path) -> None:
    """CSI: the sub paths go first, since they keep the driver's volume in use; then the driver is asked."""
    node = Node(tmp_path)
    volume = Path(node.paths.volume("kubernetes.io~csi", "pv"), "mount")
    volume.mkdir(parents=True)
    mounts.mount("csi", str(volume), "tmpfs")
    (volume / "sub" / "nested").mkdir(parents=True)
    mounts.mount(str(node.disk_dir), str(volume / "sub" / "nested"), "", mounts.MS_BIND)
    before = node.table()
    node.bind("sub", volume=volume)
    node.bind(index=1)
    CsiDisk(str(node.kubelet)).unbind_sub_paths(node.paths)
    assert node.table() == before
    assert (volume / "sub" / "nested" / "precious").exists()
    assert (node.disk_dir / "precious").exists()


@isolated
def test_a_tree_that_a_pod_bound_into_its_volume(tmp_path: Path) -> None:
    """A privileged pod with Bidirectional propagation leaves a recursive bind of the host in its emptyDir."""
    node = Node(tmp_path)
    made = node.disk.set_up(node.paths, [EmptyDir("e"), EmptyDir("m", "Memory", 1 << 20)])
    before = [line for line in node.table() if "kubelet/pods" not in line]
    for volume in made.values():
        inside = Path(volume.path, "host")
        inside.mkdir()
        mounts.mount(str(node.host), str(inside), "", mounts.MS_BIND | mounts.MS_REC)
        assert (inside / "data" / "disk" / "precious").exists()
    node.disk.tear_down(node.paths)
    assert node.table() == before
    assert (node.disk_dir / "precious").exists()
    assert not os.path.exists(node.paths.pod)


@isolated
def test_bidirectional_sub_paths_still_reach_the_host(tmp_path: Path) -> None:
    """A driver that mounts below its sub path: the host sees it, as with upstream; its end takes nothing along."""
    node = Node(tmp_path)
    target = node.bind(peers=True)
    mounts.mount("driver", f"{target}/later", "tmpfs")
    assert mounts.mount_at(str(node.host / "data" / "later")) is not None
    before = [line for line in node.table() if "kubelet/pods" not in line]
    node.disk.tear_down(node.paths)
    assert node.table() == before


@isolated
def test_containers_see_what_is_mounted_later_in_a_sub_path(tmp_path: Path) -> None:
    """HostToContainer: the sub path hands the host's mounts on to namespaces that are slaves of it."""
    node = Node(tmp_path)
    target = node.bind()
    container = node.root / "container"
    container.mkdir()
    mounts.mount(target, str(container), "", mounts.MS_BIND | mounts.MS_REC)
    mounts.mount("", str(container), "", mounts.MS_REC | mounts.MS_SLAVE)
    mounts.mount("later", str(node.host / "data" / "later"), "tmpfs")
    assert mounts.mount_at(f"{container}/later") is not None


@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.002, 0.005], ids=str)
def test_an_agent_that_is_killed_meanwhile(tmp_path: Path, pause: float) -> None:
    """Binding and tearing down, over and over, with SIGKILL in the middle: the next agent clears up and no more."""

    @isolated
    def run() -> None:
        node = Node(tmp_path)
        before = node.table()
        for _ in range(5):
            _kill_after(pause, lambda: _bind_and_tear_down(node))
            node.disk.tear_down(node.paths)
            assert node.table() == before
            assert (node.disk_dir / "precious").exists()

    run()


def _bind_and_tear_down(node: Node) -> None:
    while True:
        for index in range(3):
            node.bind(index=index)
        node.disk.tear_down(node.paths)


def _kill_after(pause: float, work: Callable[[], None]) -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"1")
        work()
        os._exit(1)
    os.read(reading, 1)
    deadline = time.monotonic() + pause
    while time.monotonic() < deadline:
        pass  # a kill at a given moment is what is tested: nothing to wait for
    os.kill(child, signal.SIGKILL)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("name", ["a\rb", "a\vb", "a\u2028b", "a\x85b", "a\udcffb", "a b\\c"], ids=ascii)
def test_a_sub_path_of_any_name_is_unmounted_and_stops_no_agent(tmp_path: Path, name: str) -> None:
    """The mount table has the name as it is: its line was read as two, so that an agent that started then ended with
    an IndexError, and the end of the pod did not see the mount."""

    @isolated
    def run() -> None:
        node = Node(tmp_path)
        target = node.bind(name)
        (node.host / name / "precious").write_text("x")
        assert [one.path for one in mounts.mounts_below(node.paths.pod)] == [target]
        assert mounts_here().points
        node.disk.tear_down(node.paths)
        assert not os.path.exists(node.paths.pod)
        assert (node.host / name / "precious").exists()

    run()
