"""What a pod writes is counted within 5 % of `du`, wherever and however it writes it, or counts as over its limit."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.stats.edge import machine
from nodelib import file_trees, mounts
from nodelib.errors import Temporary
from tests.hostile_trees import all_kinds, deep, running, swapping, wide
from tests.netns.mount_namespace import isolated

pytestmark = pytest.mark.netns

MIB = 1 << 20


def written(path: str | Path, size: int, dir_fd: int | None = None) -> None:
    handle = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=dir_fd)
    os.posix_fallocate(handle, 0, size)
    os.close(handle)


def long_paths(top: str) -> None:
    """50 MiB below a path of 4,400 characters (proven on an earlier agent, which counted 86 KiB)."""
    at = os.open(top, os.O_RDONLY)
    for _ in range(22):
        os.mkdir("d" * 200, dir_fd=at)
        at = os.open("d" * 200, os.O_RDONLY, dir_fd=at)
    written("big", 50 * MIB, at)


def deep_with_file(top: str) -> None:
    deep(top, 3000)
    written(Path(top, "d/d/d/d/big"), 20 * MIB)


def closed(top: str) -> None:
    Path(top, "closed").mkdir()
    written(Path(top, "closed", "big"), 20 * MIB)
    os.chmod(Path(top, "closed"), 0)


def linked(top: str) -> None:
    written(Path(top, "one"), 20 * MIB)
    for number in range(50):
        os.link(Path(top, "one"), Path(top, f"link-{number}"))


CASES: list[tuple[str, Callable[[str], None]]] = [
    ("long paths", long_paths),
    ("deep", deep_with_file),
    ("closed modes", closed),
    ("hard links", linked),
    ("every kind of file", all_kinds),
    ("20,000 files", lambda top: wide(top, 20_000)),
]


@pytest.mark.parametrize("make", [one for _, one in CASES], ids=[name for name, _ in CASES])
def test_as_du_counts(tmp_path: Path, make: Callable[[str], None]) -> None:
    @isolated
    def run() -> None:
        mounts.mount("node", str(tmp_path), "tmpfs")
        top = tmp_path / "volume"
        top.mkdir()
        make(str(top))
        done = subprocess.run(["du", "-sx", "-B1", str(top)], capture_output=True, text=True, check=True)
        inodes = subprocess.run(["du", "-sx", "--inodes", str(top)], capture_output=True, text=True, check=True)
        expected, found = int(done.stdout.split()[0]), machine.tree(str(top))
        assert found.unread == ""
        assert abs(found.used - expected) <= expected * 0.05
        assert found.inodes == int(inodes.stdout.split()[0])
        file_trees.remove(str(top))

    run()


@isolated
def test_what_is_mounted_in_it_is_somebody_elses(tmp_path: Path) -> None:
    """Also of the same file system: else a pod could be charged with the host's files."""
    mounts.mount("node", str(tmp_path), "tmpfs")
    for name in ("volume/bind", "volume/tmpfs", "host"):
        (tmp_path / name).mkdir(parents=True)
    written(tmp_path / "host" / "big", 20 * MIB)
    mounts.mount(str(tmp_path / "host"), str(tmp_path / "volume" / "bind"), "", mounts.MS_BIND)
    mounts.mount("inner", str(tmp_path / "volume" / "tmpfs"), "tmpfs")
    written(tmp_path / "volume" / "tmpfs" / "big", 20 * MIB)
    found = machine.tree(str(tmp_path / "volume"))
    assert (found.used, found.unread) == (0, "")


# It gives one entry a new name all the time, out of a thousand.
_RENAMER = """
import os, sys
at, number = sys.argv[1], 0
os.chdir(at)
while True:
    following = (number + 1) % 1000
    os.rename(f"n{number}", f"n{following}")
    number = following
"""


def measured_again_and_again(top: Path) -> None:
    """For a second at least: 20 MiB are always found, or it is said that something was not read."""
    began, rounds = time.monotonic(), 0
    while time.monotonic() - began < 1 or (rounds < 100 and time.monotonic() - began < 30):
        found = machine.tree(str(top))
        assert found.used >= 20 * MIB or found.unread
        rounds += 1


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_is_renamed_all_the_time_is_counted_or_over(tmp_path: Path, kind: str) -> None:
    @isolated
    def run() -> None:
        mounts.mount("node", str(tmp_path), "tmpfs")
        if kind == "directory":
            (tmp_path / "n0").mkdir()
        written(tmp_path / ("n0/big" if kind == "directory" else "n0"), 20 * MIB)
        with running(_RENAMER, tmp_path) as renamer:
            measured_again_and_again(tmp_path)
            assert renamer.poll() is None

    run()


@isolated
def test_a_directory_that_exchanges_its_name_with_a_file_is_counted_or_over(tmp_path: Path) -> None:
    mounts.mount("node", str(tmp_path), "tmpfs")
    (tmp_path / "one").mkdir()
    written(tmp_path / "one" / "big", 20 * MIB)
    (tmp_path / "other").touch()
    with swapping(tmp_path / "one", tmp_path / "other") as swapper:
        measured_again_and_again(tmp_path)
        assert swapper.poll() is None


@isolated
def test_files_that_come_and_go_are_no_reason_to_evict(tmp_path: Path) -> None:
    """A pod that writes drafts and renames them, and removes others, all the time."""
    mounts.mount("node", str(tmp_path), "tmpfs")
    written(tmp_path / "kept", 5 * MIB)
    ended = threading.Event()

    def work() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            written(tmp_path / "draft", 4096)
            os.rename(tmp_path / "draft", tmp_path / "current")
            (tmp_path / f"d{number}").mkdir()
            (tmp_path / f"d{number}").rmdir()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(300):
            found = machine.tree(str(tmp_path))
            assert found.unread == "" and 5 * MIB <= found.used <= 5 * MIB + 5 * 4096
    finally:
        ended.set()
        worker.join()


@pytest.mark.parametrize(
    ("number", "is_ours"), [(errno.EIO, False), (errno.EACCES, False), (errno.EMFILE, True), (errno.ENOMEM, True)]
)
def test_what_cannot_be_read(tmp_path: Path, number: int, is_ours: bool) -> None:
    """The pod's fault: it counts as over. The node's own: no pod is evicted for it, and it is measured later."""
    (tmp_path / "bad").mkdir()
    (tmp_path / "good").write_bytes(b"x" * 10_000)

    def failing(folder: int, name: str, flags: int, resolve: int) -> int:
        raise OSError(number, os.strerror(number), name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nodelib.file_trees.openat2", failing)
        if is_ours:
            with pytest.raises(Temporary, match="cannot be measured"):
                machine.tree(str(tmp_path))
        else:
            found = machine.tree(str(tmp_path))
            assert "bad" in found.unread and found.used >= 10_000


def test_nothing_there_uses_nothing(tmp_path: Path) -> None:
    found = machine.tree(str(tmp_path / "none"))
    assert (found.used, found.inodes, found.unread) == (0, 0, "")


def test_a_single_file(tmp_path: Path) -> None:
    (tmp_path / "etc-hosts").write_bytes(b"x" * 10_000)
    found = machine.tree(str(tmp_path / "etc-hosts"))
    assert found.used >= 10_000 and found.inodes == 1
