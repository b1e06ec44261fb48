"""Log files on disk: the tail, and followers that lose nothing however the log is rotated."""

from __future__ import annotations

import asyncio
import gzip
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.common.edge.inotify import Inotify
from agent.logs.edge import log_reader
from nodelib.errors import NotFound, Temporary


@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"?")), max_size=40), st.integers(0, 45))
def test_tail_offset_is_the_start_of_the_last_lines(lines: list[bytes], count: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    handle = os.memfd_create("tail")
    try:
        os.write(handle, data)
        expected = b"".join(line + b"\n" for line in lines[len(lines) - count :]) if count < len(lines) else data
        assert data[log_reader.tail_offset(handle, len(data), count) :] == expected
    finally:
        os.close(handle)


def test_tail_over_many_blocks(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"".join(b"%06d %s\n" % (number, b"x" * 300) for number in range(5000)))
    with path.open("rb") as file:
        at = log_reader.tail_offset(file.fileno(), path.stat().st_size, 1000)
        assert path.read_bytes()[at : at + 6] == b"004000"
        assert log_reader.tail_offset(file.fileno(), path.stat().st_size, 5000) == 0


async def _read(path: Path, tail: int | None = None) -> bytes:
    return b"".join([chunk async for chunk in log_reader.read(str(path), tail)])


async def test_read_ends_at_the_end_with_an_unfinished_line(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    path.write_bytes(b"one\ntwo\nthr")
    assert await _read(path) == b"one\ntwo\nthr"
    assert await _read(path, 1) == b"two\nthr"
    assert await _read(path, 0) == b"thr"


async def test_no_log_is_said_with_its_path(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"0\.log"):
        await _read(tmp_path / "0.log")


async def test_a_watch_of_no_directory_is_refused(tmp_path: Path) -> None:
    inotify = Inotify()
    with pytest.raises(Temporary, match="No such file"):
        inotify.watch(str(tmp_path / "gone"))
    inotify.close()


class _Writer:
    """A runtime's log: one file that is open, rotations as the kubelet makes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path.open("ab", buffering=0)
        self.written = b""
        self.rotations = 0
        self.running = True

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.written += data

    def rename(self) -> None:
        self.rotations += 1
        self.path.rename(f"{self.path}.20260101-{self.rotations:06d}")

    def reopen(self) -> None:
        self.file.close()
        self.file = self.path.open("ab", buffering=0)

    def pack_older(self) -> None:
        older = sorted(entry for entry in self.path.parent.glob("0.log.*") if entry.suffix != ".gz")
        for entry in older[:-1]:
            entry.with_name(entry.name + ".gz").write_bytes(gzip.compress(entry.read_bytes()))
            entry.unlink()

    def close(self) -> None:
        self.file.close()
        self.running = False

    async def is_running(self, sure: bool) -> bool:
        return self.running


async def _follow(writer: _Writer, tail: int | None = None) -> tuple[asyncio.Task[bytes], Inotify]:
    inotify = Inotify()

    async def collect() -> bytes:
        return b"".join(
            [chunk async for chunk in log_reader.follow(str(writer.path), tail, inotify, writer.is_running)]
        )

    return asyncio.create_task(collect()), inotify


async def test_follow_ends_with_the_container_and_has_all(tmp_path: Path) -> None:
    writer = _Writer(tmp_path / "0.log")
    writer.write(b"before\n")
    task, inotify = await _follow(writer)
    for number in range(20):
        writer.write(b"line %d\n" % number)
        await asyncio.sleep(0.001)
    writer.write(b"unfinished")
    writer.close()
    assert await asyncio.wait_for(task, 10) == writer.written
    inotify.close()


async def test_follow_of_an_ended_container_does_not_wait(tmp_path: Path) -> None:
    writer = _Writer(tmp_path / "0.log")
    writer.write(b"a\nb\nc\n")
    writer.close()
    started = asyncio.get_running_loop().time()
    task, inotify = await _follow(writer, tail=2)
    assert await asyncio.wait_for(task, 10) == b"b\nc\n"
    assert asyncio.get_running_loop().time() - started < 0.5
    inotify.close()


async def test_writes_between_rename_and_reopen_are_not_lost(tmp_path: Path) -> None:
    writer = _Writer(tmp_path / "0.log")
    task, inotify = await _follow(writer)
    writer.write(b"1\n")
    await asyncio.sleep(0.05)
    writer.rename()
    writer.write(b"2\n")
    late = writer.file
    writer.file = writer.path.open("ab", buffering=0)
    writer.write(b"3\n")
    late.write(b"late\n")
    late.close()
    writer.close()
    assert sorted((await asyncio.wait_for(task, 10)).split()) == [b"1", b"2", b"3", b"late"]
    inotify.close()


async def test_a_damaged_packed_log_does_not_end_the_follow(tmp_path: Path) -> None:
    writer = _Writer(tmp_path / "0.log")
    task, inotify = await _follow(writer)
    for text in (b"one\n", b"two\n"):
        writer.write(text)
        writer.rename()
        writer.reopen()
    (tmp_path / "0.log.20260101-000002.gz").write_bytes(gzip.compress(b"two\n")[:-4])
    (tmp_path / "0.log.20260101-000002").unlink()
    writer.write(b"three\n")
    writer.close()
    assert (await asyncio.wait_for(task, 10)).endswith(b"three\n")
    inotify.close()


async def test_a_follower_that_looks_late_catches_up_rotated_and_packed_files(tmp_path: Path) -> None:
    writer = _Writer(tmp_path / "0.log")
    task, inotify = await _follow(writer)
    writer.write(b"first\n")
    await asyncio.sleep(0.05)
    for number in range(5):  # all of it before the follower runs again
        writer.write(b"round %d\n" % number)
        writer.rename()
        writer.reopen()
        writer.pack_older()
    writer.write(b"last\n")
    writer.close()
    assert await asyncio.wait_for(task, 10) == writer.written
    inotify.close()


@settings(max_examples=12, deadline=None)
@given(steps=st.lists(st.sampled_from(["write", "rotate", "pack", "yield"]), min_size=1, max_size=25))
def test_follow_loses_nothing(steps: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("log")

    async def run() -> tuple[bytes, bytes]:
        writer = _Writer(folder / "0.log")
        task, inotify = await _follow(writer)
        await asyncio.sleep(0)
        for number, step in enumerate(steps):
            if step == "write":
                writer.write(b"entry %d\n" % number)
            elif step == "rotate":
                writer.rename()
                writer.reopen()
            elif step == "pack":
                writer.pack_older()
            else:
                await asyncio.sleep(0.002)
        writer.close()
        followed = await asyncio.wait_for(task, 30)
        inotify.close()
        return followed, writer.written

    followed, written = asyncio.run(run())
    assert followed == written
