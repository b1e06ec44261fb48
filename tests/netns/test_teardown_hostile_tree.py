"""A pod's directory goes away whatever the pod left in it, and nothing else goes with it."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.common.model.pod_settings import PodPaths
from agent.pods.edge.pod_files import PodFiles
from agent.volumes.edge import atomic
from agent.volumes.edge.pod_disk import PodDisk
from agent.volumes.model.volumes import EmptyDir, FileProjection
from nodelib import mounts
from nodelib.errors import Temporary
from nodelib.mountinfo import Mount
from nodelib.threads import alone
from tests.hostile_trees import all_kinds, deep, swapping, wide
from tests.netns.mount_namespace import isolated

pytestmark = pytest.mark.netns

SOAK = bool(os.environ.get("NODEWRIGHT_SOAK"))


CASES: list[tuple[str, Callable[[str], None]]] = [
    ("100,000 directories in each other", lambda top: deep(top, 100_000)),
    ("a path of 600 KB", lambda top: deep(top, 3000, "d" * 200)),
    ("every kind of file", all_kinds),
    ("100,000 files in one directory", lambda top: wide(top, 100_000)),
]


@pytest.mark.parametrize("make", [one for _, one in CASES], ids=[name for name, _ in CASES])
def test_a_pod_that_left_this_goes(tmp_path: Path, make: Callable[[str], None]) -> None:
    @isolated
    def run() -> None:
        mounts.mount("node", str(tmp_path), "tmpfs")
        disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
        make(disk.set_up(paths, [EmptyDir("e")])["e"].path)
        gc.collect()  # what earlier tests have left in this process closes when it likes
        before = len(os.listdir("/proc/self/fd"))
        disk.tear_down(paths)
        assert not os.path.exists(paths.pod) and disk.pods() == []
        assert len(os.listdir("/proc/self/fd")) == before

    run()


@isolated
def test_the_event_loop_goes_on_meanwhile(tmp_path: Path) -> None:
    mounts.mount("node", str(tmp_path), "tmpfs")
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    top = disk.set_up(paths, [EmptyDir("e")])["e"].path
    wide(top, 1_000_000 if SOAK else 50_000)

    async def main() -> int:
        removal, turns = asyncio.ensure_future(alone(disk.tear_down, paths)), 0
        while not removal.done():
            await asyncio.sleep(0.001)
            turns += 1
        await removal
        return turns

    assert asyncio.run(main()) > 20
    assert not os.path.exists(paths.pod)


@isolated
def test_a_directory_that_is_swapped_for_a_link_meanwhile(tmp_path: Path) -> None:
    """By a process of the pod that outlived it: it may keep its directory, it may not have the host's removed."""
    mounts.mount("node", str(tmp_path), "tmpfs")
    disk, outside = PodDisk(str(tmp_path)), tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    for number in range(50):
        paths = PodPaths(str(tmp_path), f"u{number}")
        top = Path(disk.set_up(paths, [EmptyDir("e")])["e"].path)
        (top / "d").mkdir()
        for name in range(20):
            (top / "d" / f"kept-{name}").touch()
        (top / "d" / "kept").touch()
        (top / "link").symlink_to(outside)
        with swapping(top / "d", top / "link"):
            disk.tear_down(paths)
        assert not os.path.exists(paths.pod)
        assert (outside / "kept").read_text() == "x"


@isolated
def test_a_mount_that_comes_while_files_are_removed_is_not_entered(tmp_path: Path) -> None:
    """Also a bind mount of the same file system, which has the same device number."""
    mounts.mount("node", str(tmp_path), "tmpfs")
    disk, paths, host = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1"), tmp_path / "host"
    host.mkdir()
    (host / "kept").write_text("x")
    inside = Path(disk.set_up(paths, [EmptyDir("e")])["e"].path, "d")
    inside.mkdir()
    table = mounts.mounts_below

    def too_early(path: str) -> list[Mount]:
        """As the table was before it was mounted."""
        return []

    mounts.mount(str(host), str(inside), "", mounts.MS_BIND)
    mounts.mounts_below = too_early
    with pytest.raises(Temporary, match="mounted"):
        disk.tear_down(paths)
    assert (host / "kept").read_text() == "x"
    mounts.mounts_below = table
    disk.tear_down(paths)
    assert (host / "kept").read_text() == "x" and not os.path.exists(paths.pod)


@isolated
def test_logs_and_volume_drafts_go_as_well(tmp_path: Path) -> None:
    mounts.mount("node", str(tmp_path), "tmpfs")
    logs = tmp_path / "logs" / "default_web_u1"
    (logs / "main").mkdir(parents=True)
    deep(str(logs / "main"), 2000)
    asyncio.run(PodFiles(str(tmp_path / "logs"), str(tmp_path / "links")).remove_left_logs("u1"))
    assert not logs.exists()
    volume = tmp_path / "volume"
    volume.mkdir()
    path = "/".join("d" * 1500)
    assert atomic.write(str(volume), {path: FileProjection(b"1", 0o600)})
    assert not atomic.write(str(volume), {path: FileProjection(b"1", 0o600)})
    (volume / "..2020_01_01_00_00_00.dead").mkdir()
    deep(str(volume / "..2020_01_01_00_00_00.dead"), 2000)
    assert atomic.write(str(volume), {path: FileProjection(b"2", 0o600)})
    assert [name for name in os.listdir(volume) if name.startswith("..2")] == [os.readlink(volume / "..data")]


@isolated
def test_a_volume_file_that_became_a_fifo_does_not_hang(tmp_path: Path) -> None:
    """A pod with a hostPath to the kubelet's folder can do that."""
    volume = tmp_path / "volume"
    volume.mkdir()
    atomic.write(str(volume), {"a": FileProjection(b"1", 0o600)})
    os.unlink(volume / "..data" / "a")
    os.mkfifo(volume / "..data" / "a")
    assert atomic.write(str(volume), {"a": FileProjection(b"1", 0o600)})
    assert (volume / "a").read_text() == "1"
