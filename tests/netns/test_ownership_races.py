"""fsGroup changes the files of the volume and no others, whatever somebody renames in it meanwhile."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from agent.volumes.edge.ownership import apply_fs_group
from nodelib import file_trees, mounts
from tests.hostile_trees import all_kinds, deep, swapping
from tests.netns.mount_namespace import isolated

pytestmark = pytest.mark.netns

GROUP = 4242


def state(path: Path) -> list[tuple[str, int, int, str]]:
    found = [(str(one), os.lstat(one)) for one in (path, *sorted(path.rglob("*")))]
    return [(name, one.st_uid, one.st_gid, oct(one.st_mode)) for name, one in found]


@pytest.mark.parametrize("kind", ["a directory for a link", "a file for a link", "a file for a directory"])
def test_what_is_swapped_meanwhile_leads_nowhere(tmp_path: Path, kind: str) -> None:
    volume, outside = tmp_path / "volume", tmp_path / "outside"

    @isolated
    def run() -> None:
        mounts.mount("node", str(tmp_path), "tmpfs")
        (outside / "inner").mkdir(parents=True)
        for place in (outside, outside / "inner"):
            (place / "shadow").touch(mode=0o600)
        (volume / "dir" / "inner").mkdir(parents=True)
        for number in range(20):
            (volume / "dir" / f"f{number}").touch()
        (volume / "dir" / "shadow").touch()
        (volume / "dir" / "inner" / "shadow").touch()
        (volume / "file").touch()
        (volume / "to-dir").symlink_to(outside)
        (volume / "to-file").symlink_to(outside / "shadow")
        pairs = {
            "a directory for a link": ("dir", "to-dir"),
            "a file for a link": ("file", "to-file"),
            "a file for a directory": ("file", "dir"),
        }
        before = state(outside)
        one, other = pairs[kind]
        with swapping(volume / one, volume / other) as swapper:
            began, done = time.monotonic(), 0
            while time.monotonic() - began < 1 or (done < 50 and time.monotonic() - began < 30):
                apply_fs_group(str(volume), GROUP, read_only=False)
                done += 1
            assert swapper.poll() is None
        assert state(outside) == before

    run()


@isolated
def test_a_directory_swapped_after_it_was_listed(tmp_path: Path) -> None:
    """By hand, at the worst moment: every change of the first file comes after the swap."""
    volume, outside = tmp_path / "volume", tmp_path / "outside"
    (volume / "d").mkdir(parents=True)
    (volume / "d" / "shadow").touch()
    outside.mkdir()
    (outside / "shadow").touch(mode=0o600)
    before, opened = state(outside), os.open

    def swapping(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if path == "shadow" and not os.path.islink(volume / "d"):
            os.rename(volume / "d", volume / "e")
            os.symlink(outside, volume / "d")
        return opened(path, flags, mode, dir_fd=dir_fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", swapping)
        apply_fs_group(str(volume), GROUP, read_only=False)
    assert state(outside) == before
    assert os.stat(volume / "e" / "shadow").st_gid == GROUP


@isolated
def test_every_kind_of_file_gets_the_group(tmp_path: Path) -> None:
    mounts.mount("node", str(tmp_path), "tmpfs")
    volume = tmp_path / "volume"
    volume.mkdir()
    all_kinds(str(volume))
    apply_fs_group(str(volume), GROUP, read_only=False)
    found = [volume, *volume.iterdir(), *(volume / "closed").iterdir()]
    assert {os.lstat(path).st_gid for path in found} == {GROUP}
    modes = {path.name: stat.S_IMODE(os.lstat(path).st_mode) for path in found}
    assert (modes["closed"], modes["fifo"] & 0o660, modes["linked"] & 0o660) == (0o2770, 0o660, 0o660)
    assert os.stat("/").st_gid != GROUP


@isolated
def test_what_is_mounted_in_the_volume_belongs_to_it(tmp_path: Path) -> None:
    """As upstream has it, whose walk crosses mounts."""
    (tmp_path / "volume" / "inner").mkdir(parents=True)
    mounts.mount("inner", str(tmp_path / "volume" / "inner"), "tmpfs")
    (tmp_path / "volume" / "inner" / "f").touch()
    (tmp_path / "by-link").symlink_to(tmp_path / "volume")
    apply_fs_group(str(tmp_path / "by-link"), GROUP, read_only=False)
    assert os.stat(tmp_path / "volume" / "inner" / "f").st_gid == GROUP
    assert os.stat(tmp_path / "volume").st_gid == GROUP


@isolated
def test_a_deep_volume(tmp_path: Path) -> None:
    mounts.mount("node", str(tmp_path), "tmpfs")
    deep(str(tmp_path), 5000)
    apply_fs_group(str(tmp_path), GROUP, read_only=False)
    walk = file_trees.Walk(str(tmp_path))
    assert {os.fstat(step.handle).st_gid for step in walk if step.kind is file_trees.Kind.ENTER} == {GROUP}


@isolated
def test_on_root_mismatch_sees_a_walk_that_was_not_finished(tmp_path: Path) -> None:
    """The root is changed last, so that an agent that was killed meanwhile walks again."""
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume" / "f").touch()
    volume = str(tmp_path / "volume")
    seen: list[int] = []
    chown = os.chown

    def watching(path: str, uid: int, gid: int) -> None:
        seen.append(os.stat(volume).st_gid)
        chown(path, uid, gid)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "chown", watching)
        apply_fs_group(volume, GROUP, read_only=False, policy="OnRootMismatch")
    assert seen == [0, 0] and os.stat(volume).st_gid == GROUP
