"""A pod that may write to /var/log puts other things in the place of logs."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
from pathlib import Path

import pytest

from agent.common.edge.inotify import Inotify
from agent.common.work.gate import Gate
from agent.logs.edge import log_folder, log_reader
from nodelib.errors import NotFound, Temporary


async def _never(sure: bool) -> bool:
    return False


@pytest.mark.parametrize("name", ["0.log", "0.log.gz"])
async def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(tmp_path: Path, name: str) -> None:
    """It was opened on the event loop: one `kubectl logs`, and the agent stood still."""
    os.mkfifo(tmp_path / name)
    path, inotify = str(tmp_path / "0.log"), Inotify("test")
    try:
        async with asyncio.timeout(10):
            for lines in (log_reader.read(path, None), log_reader.follow(path, 5, inotify, _never)):
                with pytest.raises(NotFound, match="not a regular file"):
                    await anext(lines)
    finally:
        inotify.close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    made = tmp_path / "secret"
    made.write_text("of the node")
    return made


@pytest.mark.parametrize("other", ["link", "pipe"])
def test_what_is_no_log_is_not_packed(tmp_path: Path, secret: Path, other: str) -> None:
    """Root packed what a link led to, where the pod could read it."""
    path = tmp_path / "0.log.20260101-000000"
    if other == "link":
        path.symlink_to(secret)
    else:
        os.mkfifo(path)
    with pytest.raises(Temporary):
        log_folder.pack(str(path))
    assert not Path(f"{path}.gz").exists() and secret.read_text() == "of the node"


def test_packing_writes_through_no_link(tmp_path: Path, secret: Path) -> None:
    """The name of the draft is known beforehand: a link there had root write to any file."""
    path = tmp_path / "0.log.20260101-000000"
    path.write_text("lines\n")
    Path(f"{path}.tmp").symlink_to(secret)
    log_folder.pack(str(path))
    assert secret.read_text() == "of the node"
    assert gzip.decompress(Path(f"{path}.gz").read_bytes()) == b"lines\n" and not path.exists()


def test_a_folder_of_very_many_files_is_read_in_part(tmp_path: Path) -> None:
    """They were listed, sorted and compared for each rotation and each `kubectl logs -f`, on the event loop."""
    for number in range(log_folder.MOST_FILES + 100):
        (tmp_path / f"0.log.{number:08}").touch()
    assert len(log_folder.names(str(tmp_path))) == log_folder.MOST_FILES


async def test_a_line_without_end_is_passed_on_in_pieces(tmp_path: Path) -> None:
    """Of one of 16 MiB each reader kept 24 MB, and searched all that it had with each part: forty readers took 19 s,
    and the event loop stood still for 2.6 s."""
    line = b"2026-01-01T00:00:00Z stdout F " + b"x" * (16 << 20) + b"\n"
    (tmp_path / "0.log").write_bytes(line + b"2026-01-01T00:00:00Z stdout F next\n")
    began = time.process_time()
    for _ in range(5):
        found = [piece async for piece in log_reader.read(str(tmp_path / "0.log"), None)]
    assert time.process_time() - began < 1
    assert max(map(len, found)) < 2 << 20 and b"".join(found) == (tmp_path / "0.log").read_bytes()


async def test_the_last_lines_of_a_file_without_lines_are_not_looked_for_for_ever(tmp_path: Path) -> None:
    """Of a sparse file of terabytes, in which nothing is on the disk: each `kubectl logs --tail` held one of the few
    threads that the agent has for everything."""
    path = tmp_path / "0.log"
    path.write_bytes(b"2026-01-01T00:00:00Z stdout F first\n")
    os.truncate(path, 1 << 40)
    with path.open("ab") as file:
        file.write(b"2026-01-01T00:00:00Z stdout F last\n" * 2)
    inotify, began = Inotify("test"), time.process_time()
    reader = log_reader.LogReader(inotify, Gate(log_reader.MOST_TAILS, longest=None))
    try:
        lines = [reader.read(str(path), 9) for _ in range(4)]
        for found in await asyncio.gather(*(anext(one) for one in lines)):
            assert set(found) == {0}
        assert (await anext(reader.read(str(path), 1))).endswith(b"last\n")
    finally:
        inotify.close()
    assert time.process_time() - began < 10


async def test_last_lines_of_another_namespace_are_looked_for_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of hundreds of megabytes, as somebody writes them between two looks at its size, and a hundred requests for
    more lines than it has: those of all others came after them."""
    asked: list[str] = []
    for name in ("mine", "yours"):
        (tmp_path / name).write_bytes(b"2026-01-01T00:00:00Z stdout F a\n")

    def look(file: log_reader.LogFile, lines: int) -> None:
        asked.append(Path(file.path).name)
        time.sleep(0.001)

    monkeypatch.setattr(log_reader.LogFile, "skip_to_tail", look)
    inotify = Inotify("test")
    reader = log_reader.LogReader(inotify, Gate(log_reader.MOST_TAILS, longest=None))
    try:
        names = [*["mine"] * 30, "yours"]
        await asyncio.gather(*(anext(reader.read(str(tmp_path / name), 9, name)) for name in names))
    finally:
        inotify.close()
    assert len(asked) == 31 and asked.index("yours") <= log_reader.MOST_TAILS


def test_a_file_that_no_log_can_be_is_not_packed(tmp_path: Path) -> None:
    """Zeros of a sparse file: hours in which no log of the node was rotated, and gigabytes that were written."""
    path = tmp_path / "0.log.20260101-000000"
    path.touch()
    os.truncate(path, 1 << 40)
    log_folder.pack(str(path))
    assert path.exists() and len(list(tmp_path.iterdir())) == 1


async def test_who_writes_beside_a_log_keeps_nobody_busy(tmp_path: Path) -> None:
    """Each event in the folder had all who follow the log look for lines, and ask the runtime about the container."""
    (tmp_path / "0.log").write_text("2026-01-01T00:00:00Z stdout F a\n")
    asked: list[bool] = []

    async def running(sure: bool) -> bool:
        asked.append(sure)
        return True

    async def beside() -> None:
        for number in range(400):
            (tmp_path / "other").write_text(str(number))
            await asyncio.sleep(0.001)

    inotify = Inotify("test")
    lines = log_reader.follow(str(tmp_path / "0.log"), None, inotify, running)
    try:
        assert await anext(lines)
        more = asyncio.ensure_future(anext(lines))
        await beside()
        assert len(asked) < 40
        with (tmp_path / "0.log").open("a") as file:
            file.write("2026-01-01T00:00:00Z stdout F b\n")
        assert (await asyncio.wait_for(more, 5)).endswith(b"b\n")
    finally:
        await lines.aclose()
        inotify.close()


_LINE = b"2026-01-01T00:00:00Z stdout F a\n"


@pytest.mark.parametrize("rest", ["nothing", "members"])
async def test_what_is_added_to_a_packed_log_is_not_read(tmp_path: Path, rest: str) -> None:
    """Zeros of a sparse file were passed over one at a time, and members without content one after the other, both in
    one turn of the event loop: 0.35 s for each MiB of nothing, days for a terabyte."""
    path = tmp_path / "0.log.gz"
    path.write_bytes(gzip.compress(_LINE) + (gzip.compress(b"") * 250_000 if rest == "members" else b""))
    if rest == "nothing":
        os.truncate(path, 8 << 20)
    began = time.process_time()
    assert [piece async for piece in log_reader.read(str(tmp_path / "0.log"), None)] == [_LINE]
    assert time.process_time() - began < 0.5


async def test_a_packed_log_of_which_nothing_comes_is_damaged(tmp_path: Path) -> None:
    """Empty blocks, as many as the disk has room for: each reader held one of the few threads until their end."""
    head, empty = gzip.compress(b"")[:10], b"\x00\x00\x00\xff\xff"
    (tmp_path / "0.log.gz").write_bytes(head + empty * (4 << 20))
    began = time.process_time()
    assert [piece async for piece in log_reader.read(str(tmp_path / "0.log"), None)] == []
    assert time.process_time() - began < 0.1


async def test_a_packed_log_is_read_whole(tmp_path: Path) -> None:
    lines = b"".join(
        b"2026-01-01T00:00:00Z stdout F %d %s\n" % (number, b"x" * (number % 300)) for number in range(30_000)
    )
    (tmp_path / "0.log.gz").write_bytes(gzip.compress(lines))
    assert b"".join([piece async for piece in log_reader.read(str(tmp_path / "0.log"), None)]) == lines
