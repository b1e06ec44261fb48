"""Volumes on a real kernel: tmpfs, bind mounts, ownership, sub paths that try to escape, tear-down."""

from __future__ import annotations

import os
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.common.model.pod_settings import PodPaths
from agent.volumes.edge import atomic, subpath
from agent.volumes.edge.pod_disk import PodDisk
from agent.volumes.model.volumes import AtomicVolume, DiskVolume, EmptyDir, FileProjection, HostPath, ImageVolume
from nodelib import mounts
from nodelib.errors import Permanent, Temporary
from tests.hostile_trees import swapping
from tests.netns.mount_namespace import isolated

pytestmark = pytest.mark.netns


def mode(path: str | Path) -> str:
    return oct(stat.S_IMODE(os.lstat(path).st_mode))


def files(**content: str) -> dict[str, FileProjection]:
    return {name.replace("__", "/"): FileProjection(text.encode(), 0o644) for name, text in content.items()}


def secret(name: str = "s", fs_group: int | None = None, **content: str) -> AtomicVolume:
    return AtomicVolume(name, "kubernetes.io~secret", files(**content), True, 1 << 20, fs_group)


@isolated
def test_memory_volumes_are_tmpfs_of_their_size(tmp_path: Path) -> None:
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    made = disk.set_up(paths, [EmptyDir("m", "Memory", 1 << 20), secret(a="1")])
    for volume in made.values():
        found = mounts.mount_at(volume.path)
        assert found is not None and found.fs_type == "tmpfs"
        usage = os.statvfs(volume.path)
        assert usage.f_blocks * usage.f_frsize == 1 << 20
    assert mode(made["m"].path) == "0o1777"
    assert (made["m"].read_only, made["s"].read_only) == (False, True)


@isolated
def test_set_up_twice_changes_nothing(tmp_path: Path) -> None:
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    plans: list[DiskVolume] = [
        EmptyDir("e"),
        EmptyDir("m", "Memory", 1 << 20),
        secret(a="1"),
        ImageVolume("i", "r/a:1"),
    ]
    made = disk.set_up(paths, plans)
    Path(made["e"].path, "kept").write_text("x")
    Path(made["m"].path, "kept").write_text("x")
    before = os.readlink(Path(made["s"].path, "..data"))
    assert disk.set_up(paths, plans) == made
    assert Path(made["e"].path, "kept").exists() and Path(made["m"].path, "kept").exists()
    assert os.readlink(Path(made["s"].path, "..data")) == before
    assert len(mounts.mounts_below(paths.pod)) == 2


@isolated
def test_modes_do_not_depend_on_the_umask(tmp_path: Path) -> None:
    os.umask(0o077)
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    made = disk.set_up(paths, [EmptyDir("e"), secret(a__b="1")])
    assert mode(made["e"].path) == "0o777"
    assert mode(paths.pod) == mode(paths.volumes) == "0o750"
    assert mode(Path(made["s"].path, "..data", "a")) == "0o755"
    assert mode(Path(made["s"].path, "a", "b")) == "0o644"


@isolated
@pytest.mark.parametrize("medium", ["", "Memory"])
def test_the_mode_of_an_empty_dir(tmp_path: Path, medium: str) -> None:
    """Upstream's kubelet sets it before it mounts a tmpfs, which hides it."""
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    plans: list[DiskVolume] = [
        EmptyDir("own", medium, mode=0o1750),
        EmptyDir("group", medium, fs_group=4242, mode=0o700),
    ]
    made = disk.set_up(paths, plans)
    assert [mode(made[one].path) for one in ("own", "group")] == ["0o1750", "0o2770"]
    os.chmod(made["own"].path, 0o711)
    disk.set_up(paths, plans)
    assert mode(made["own"].path) == "0o711", "what the pod changed stays when the agent starts again"


@isolated
def test_fs_group(tmp_path: Path) -> None:
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    tight = AtomicVolume(
        "t", "kubernetes.io~projected", {"token": FileProjection(b"x", 0o600, 1000)}, True, 1 << 20, 4242
    )
    made = disk.set_up(paths, [EmptyDir("e", fs_group=4242), tight])
    directory = os.stat(made["e"].path)
    assert (directory.st_gid, mode(made["e"].path)) == (4242, "0o2777")
    token = os.stat(Path(made["t"].path, "token"))
    assert (token.st_uid, token.st_gid, oct(stat.S_IMODE(token.st_mode))) == (1000, 4242, "0o640")


@isolated
def test_fs_group_follows_no_link(tmp_path: Path) -> None:
    outside, volume = tmp_path / "outside", tmp_path / "volume"
    outside.write_text("x")
    outside.chmod(0o600)
    volume.mkdir()
    (volume / "link").symlink_to(outside)
    PodDisk(str(tmp_path)).set_up(PodPaths(str(tmp_path), "u1"), [HostPath("h", str(volume), fs_group=4242)])
    assert (os.stat(outside).st_gid, mode(outside)) == (0, "0o600")
    assert os.lstat(volume / "link").st_gid == 4242


@isolated
def test_fs_group_of_a_claim_is_applied_once(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    plan = HostPath("h", str(volume), "Directory", fs_group=4242)
    disk.set_up(paths, [plan])
    os.chown(volume, -1, 1)
    disk.set_up(paths, [plan])
    assert os.stat(volume).st_gid == 1


@isolated
@pytest.mark.parametrize(
    ("policy", "root_group", "left_alone"),
    [("OnRootMismatch", 4242, True), ("OnRootMismatch", 1, False), ("Always", 4242, False)],
)
def test_on_root_mismatch_leaves_the_files_of_a_root_that_fits(
    tmp_path: Path, policy: str, root_group: int, left_alone: bool
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "file").write_text("x")
    os.chown(volume, -1, root_group)
    volume.chmod(0o2775)
    plan = HostPath("h", str(volume), "Directory", fs_group=4242, fs_group_policy=policy)
    PodDisk(str(tmp_path)).set_up(PodPaths(str(tmp_path), "u1"), [plan])
    assert os.stat(volume / "file").st_gid == (0 if left_alone else 4242)


@pytest.mark.parametrize(
    ("kind", "exists", "error"),
    [
        ("", "nothing", None),
        ("DirectoryOrCreate", "nothing", None),
        ("DirectoryOrCreate", "file", "is not a directory"),
        ("Directory", "nothing", "is not a directory"),
        ("Directory", "directory", None),
        ("FileOrCreate", "nothing", None),
        ("File", "nothing", "is not a file"),
        ("File", "directory", "is not a file"),
        ("Socket", "file", "is not a socket"),
        ("CharDevice", "file", "is not a character device"),
        ("BlockDevice", "file", "is not a block device"),
    ],
)
def test_host_path_types(tmp_path: Path, kind: str, exists: str, error: str | None) -> None:
    path = tmp_path / "x"
    if exists == "file":
        path.write_text("")
    elif exists == "directory":
        path.mkdir()
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    if error:
        with pytest.raises(Permanent, match=f'volume "h".*{error}'):
            disk.set_up(paths, [HostPath("h", str(path), kind)])
        return
    assert disk.set_up(paths, [HostPath("h", str(path), kind)])["h"].path == str(path)
    assert path.is_dir() == (kind.startswith("Directory") or exists == "directory")
    assert path.is_file() == kind.startswith("File")


@isolated
def test_update_is_seen_through_the_same_links(tmp_path: Path) -> None:
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    root = Path(disk.set_up(paths, [secret(a="1", d__e="2")])["s"].path)
    handle = os.open(root, os.O_PATH)
    assert disk.update(paths, [secret(a="1", d__e="2")]) == []
    assert disk.update(paths, [secret(a="9", new="3")]) == ["s"]
    assert sorted(os.listdir(root))[-2:] == ["a", "new"]
    assert not (root / "d").exists()
    inside = os.open("a", os.O_RDONLY, dir_fd=handle)
    assert os.read(inside, 9) == b"9"
    assert len([name for name in os.listdir(root) if name.startswith("..2")]) == 1


@isolated
def test_update_never_writes_below_a_tmpfs_that_is_gone(tmp_path: Path) -> None:
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    root = disk.set_up(paths, [secret(a="1")])["s"].path
    mounts.unmount(root)
    assert disk.update(paths, [secret(a="2")]) == []
    assert os.listdir(root) == []
    disk.tear_down(paths)
    assert disk.update(paths, [secret(a="3")]) == []
    assert not os.path.exists(paths.pod)


@isolated
def test_update_after_an_agent_that_died_half_way(tmp_path: Path) -> None:
    root = tmp_path / "v"
    root.mkdir()
    (root / "..2020_01_01_00_00_00.dead").mkdir()
    (root / "..data_tmp").symlink_to("..2020_01_01_00_00_00.dead")
    assert atomic.write(str(root), files(a="1"))
    assert (root / "a").read_text() == "1"
    assert [name for name in os.listdir(root) if "dead" in name or name == "..data_tmp"] == []


PAYLOADS = st.dictionaries(
    st.sampled_from(["a", "b", "d/x", "d/y", "e/f/g"]),
    st.binary(max_size=4).map(lambda data: FileProjection(data, 0o640)),
    max_size=5,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PAYLOADS, min_size=1, max_size=4))
def test_after_any_writes_the_last_one_is_what_a_reader_sees(
    tmp_path: Path, payloads: list[dict[str, FileProjection]]
) -> None:
    with tempfile.TemporaryDirectory(dir=tmp_path) as directory:
        for payload in payloads:
            atomic.write(directory, payload)
            seen: dict[str, bytes] = {}
            for name in os.listdir(directory):
                if name.startswith(".."):
                    continue
                top = Path(directory, name)
                found = [top] if top.is_file() else [path for path in top.rglob("*") if path.is_file()]
                seen |= {str(path.relative_to(directory)): path.read_bytes() for path in found}
            assert seen == {path: file.data for path, file in payload.items()}
            assert not atomic.write(directory, payload)


def escaping(volume: Path, outside: Path) -> list[tuple[str, Callable[[], Any], str]]:
    link = volume / "link"

    def chain() -> None:
        link.symlink_to("two")
        (volume / "two").symlink_to(outside)

    return [
        ("absolute link", lambda: link.symlink_to(outside), "link"),
        ("absolute link, below it", lambda: link.symlink_to(outside), "link/sub"),
        ("relative link out", lambda: link.symlink_to("../outside"), "link"),
        ("link to the parent", lambda: link.symlink_to(".."), "link"),
        ("link through a link", chain, "link"),
        ("dangling link", lambda: link.symlink_to("/nowhere/at/all"), "link"),
        ("dangling link, below it", lambda: link.symlink_to(outside / "fresh"), "link/fresh"),
        ("link to itself", lambda: link.symlink_to("link"), "link"),
        ("magic link", lambda: link.symlink_to("/proc/self/root"), "link/etc"),
        ("file in the way", lambda: link.write_text(""), "link/sub"),
    ]


@pytest.mark.parametrize("case", range(10))
def test_sub_paths_cannot_leave_the_volume(tmp_path: Path, case: int) -> None:
    volume, outside, target = tmp_path / "volume", tmp_path / "outside", tmp_path / "pods" / "target"

    @isolated
    def run() -> None:
        volume.mkdir()
        outside.mkdir()
        (outside / "secret").write_text("s")
        _, prepare, path = escaping(volume, outside)[case]
        prepare()
        with pytest.raises(Permanent, match="failed to prepare subPath"):
            subpath.bind(str(volume), path, str(target))
        assert os.listdir(outside) == ["secret"]
        assert mounts.mounts_below(str(tmp_path)) == []

    run()


@pytest.mark.parametrize("path", ["dir", "dir/file", "dir/new/deep"])
def test_sub_paths_cannot_be_raced_out_of_the_volume(tmp_path: Path, path: str) -> None:
    """Whatever a pod renames while its neighbour is prepared: a mount shows the volume, or there is none."""
    volume, outside = tmp_path / "volume", tmp_path / "outside"

    @isolated
    def run() -> None:
        for place in (volume / "dir", outside):
            place.mkdir(parents=True)
            (place / "file").write_text(place.name)
        (volume / "link").symlink_to(outside)
        bound = refused = 0
        with swapping(volume / "dir", volume / "link") as swapper:
            began = time.monotonic()
            while time.monotonic() - began < 1 or (min(bound, refused) < 5 and time.monotonic() - began < 30):
                target = str(tmp_path / "t" / str(bound + refused))
                try:
                    subpath.bind(str(volume), path, target)
                except (Permanent, OSError):
                    refused += 1
                    continue
                bound += 1
                seen = Path(target) if path.endswith("file") else Path(target, "file")
                assert not seen.exists() or seen.read_text() == "dir"
                mounts.unmount(target, mounts.MNT_DETACH)
            assert swapper.poll() is None
        assert sorted(os.listdir(outside)) == ["file"] and (outside / "file").read_text() == "outside"
        assert min(bound, refused) >= 5, "the two never met"

    run()


@isolated
def test_sub_paths_inside(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    (volume / "real").mkdir(parents=True)
    (volume / "real" / "file").write_text("x")
    (volume / "link").symlink_to("real")
    volume.chmod(0o2777)
    for index, (path, is_dir) in enumerate(
        [("real", True), ("real/file", False), ("link/file", False), ("new/deep", True)]
    ):
        target = str(tmp_path / "t" / str(index))
        assert subpath.bind(str(volume), path, target) == target
        assert os.path.isdir(target) == is_dir
        assert os.path.samefile(target, volume / path)
    assert mode(volume / "new") == mode(volume / "new/deep") == "0o2777"


@isolated
def test_sub_path_is_bound_once_and_follows_replaced_files(tmp_path: Path) -> None:
    volume, target = tmp_path / "volume", str(tmp_path / "t" / "0")
    volume.mkdir()
    (volume / "f").write_text("1")
    subpath.bind(str(volume), "f", target)
    subpath.bind(str(volume), "f", target)
    assert len(mounts.mounts_below(target)) == 1
    os.rename(volume / "f", volume / "old")
    (volume / "f").write_text("2")
    subpath.bind(str(volume), "f", target)
    assert Path(target).read_text() == "2"
    assert len(mounts.mounts_below(target)) == 1


@isolated
def test_tear_down_leaves_nothing_and_touches_nothing_else(tmp_path: Path) -> None:
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("x")
    made = disk.set_up(paths, [EmptyDir("e"), EmptyDir("m", "Memory"), secret(a="1"), HostPath("h", str(outside))])
    Path(made["e"].path, "way-out").symlink_to(outside)
    disk.bind_sub_path(made["h"].path, ".", paths.sub_path("h", "main", 0))
    disk.bind_sub_path(made["s"].path, "a", paths.sub_path("s", "main", 1))
    disk.tear_down(paths)
    assert not os.path.exists(paths.pod)
    assert mounts.mounts_below(paths.pod) == []
    assert (outside / "kept").read_text() == "x"
    disk.tear_down(paths)


@isolated
def test_tear_down_waits_for_what_is_in_use(tmp_path: Path) -> None:
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    made = disk.set_up(paths, [EmptyDir("m", "Memory"), EmptyDir("e")])
    Path(made["e"].path, "data").write_text("x")
    user = subprocess.Popen(["sleep", "60"], cwd=made["m"].path)
    try:
        with pytest.raises(Temporary, match="still mounted") as raised:
            disk.tear_down(paths)
        assert raised.value.retry_after
        assert Path(made["e"].path, "data").exists()
    finally:
        user.kill()
        user.wait()
    disk.tear_down(paths)
    assert not os.path.exists(paths.pod)


@isolated
def test_tear_down_never_removes_through_a_mount_that_comes_back(tmp_path: Path) -> None:
    """A foreign mount under the pod's directory is undone first, not emptied."""
    disk, paths = PodDisk(str(tmp_path)), PodPaths(str(tmp_path), "u1")
    made = disk.set_up(paths, [EmptyDir("e")])
    foreign, inside = tmp_path / "foreign", Path(made["e"].path, "sub dir\n")
    foreign.mkdir()
    (foreign / "kept").write_text("x")
    inside.mkdir()
    mounts.mount(str(foreign), str(inside), "", mounts.MS_BIND)
    disk.tear_down(paths)
    assert (foreign / "kept").read_text() == "x"
    assert not os.path.exists(paths.pod)


@isolated
def test_nested_mount_points_are_made(tmp_path: Path) -> None:
    plan = AtomicVolume("s", "kubernetes.io~secret", files(a="1"), True, 1 << 20, nested=("sub/deep", "a"))
    made = PodDisk(str(tmp_path)).set_up(PodPaths(str(tmp_path), "u1"), [plan])
    assert Path(made["s"].path, "sub", "deep").is_dir()


@isolated
def test_env_files_are_read_inside_their_volume_only(tmp_path: Path) -> None:
    volume = tmp_path / "v"
    volume.mkdir()
    (tmp_path / "secret").write_text("s")
    (volume / "good").write_text("K='v'")
    (volume / "bad").symlink_to("../secret")
    os.mkfifo(volume / "fifo")
    os.mknod(volume / "device", stat.S_IFCHR | 0o600, os.makedev(240, 255))  # it has no driver: opening it fails
    disk = PodDisk(str(tmp_path))
    assert disk.read_inside(str(volume), "good") == "K='v'"
    assert disk.read_inside(str(volume), "gone") is None
    assert disk.read_inside(str(volume), "fifo") is None
    assert disk.read_inside(str(volume), "device") is None
    with pytest.raises(OSError):
        disk.read_inside(str(volume), "bad")
