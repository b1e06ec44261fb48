"""Log rotation on real files, with a runtime that opens a new log when it is asked to."""

from __future__ import annotations

import asyncio
import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from agent.common.model.errors import CriUnavailable
from agent.common.model.pods import ContainerState, RunState
from agent.logs.edge import log_folder
from agent.logs.model import LogSettings
from agent.logs.work import LogRotation
from nodelib.errors import Invalid
from tests.fakes.agent_view import FakeServerRuntime, FakeView
from tests.fakes.clock import FakeClock
from tests.waiting import until

_SETTINGS = LogSettings(100, 3, 1, 10.0)


class _Bench:
    def __init__(self, folder: Path, settings: LogSettings = _SETTINGS) -> None:
        self.path = folder / "0.log"
        self.runtime = FakeServerRuntime(FakeView())
        self.runtime.on_reopen = lambda: self.path.touch()
        self.clock = FakeClock()
        self.container = ContainerState("id", "box", "u", "c", 0, RunState.RUNNING, 1, log_path=str(self.path))
        self.rotation = LogRotation(settings, self.runtime, log_folder, lambda: [self.container], self.clock)  # type: ignore[arg-type]

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.path.parent.iterdir())


async def test_short_logs_stay(tmp_path: Path) -> None:
    bench = _Bench(tmp_path)
    bench.path.write_bytes(b"x" * 99)
    assert await bench.rotation.rotate_all() == 0
    assert bench.names() == ["0.log"]


async def test_three_rotations_keep_the_newest(tmp_path: Path) -> None:
    bench = _Bench(tmp_path)
    for number in range(3):
        bench.path.write_bytes(b"%d" % number * 100)
        assert await bench.rotation.rotate_all() == 1
        await bench.clock.advance(10)
    assert bench.names() == ["0.log", "0.log.20260101-000010.gz", "0.log.20260101-000020"]
    assert gzip.decompress((tmp_path / "0.log.20260101-000010.gz").read_bytes()) == b"1" * 100
    assert (tmp_path / "0.log.20260101-000020").read_bytes() == b"2" * 100
    assert bench.runtime.reopened == ["id"] * 3


async def test_a_runtime_that_does_not_answer_leaves_the_log_as_it_was(tmp_path: Path) -> None:
    bench = _Bench(tmp_path)
    bench.path.write_bytes(b"x" * 100)
    bench.runtime.fail = CriUnavailable("no runtime", code="UNAVAILABLE")
    assert await bench.rotation.rotate_all() == 0
    assert bench.names() == ["0.log"]
    assert bench.path.read_bytes() == b"x" * 100


async def test_a_log_that_somebody_removed_is_opened_anew(tmp_path: Path) -> None:
    bench = _Bench(tmp_path)
    assert await bench.rotation.rotate_all() == 0
    assert bench.names() == ["0.log"]


@pytest.mark.parametrize("odd", ["a file in the place of the folder", "a loop of links", "a folder"])
async def test_odd_things_in_the_place_of_a_log_keep_no_other_from_being_rotated(tmp_path: Path, odd: str) -> None:
    """A pod may have the folder: no log of the node was rotated any more, as long as it stayed."""
    bench = _Bench(tmp_path)
    bench.path.write_bytes(b"x" * 100)
    theirs = tmp_path / "theirs" / "0.log"
    if odd == "a file in the place of the folder":
        theirs.parent.touch()
    else:
        theirs.parent.mkdir()
        theirs.mkdir() if odd == "a folder" else theirs.symlink_to("0.log")
    other = replace(bench.container, id="theirs", log_path=str(theirs))
    bench.rotation = LogRotation(
        _SETTINGS,
        bench.runtime,  # type: ignore[arg-type] # of which nothing else is called
        log_folder,
        lambda: [other, bench.container],
        bench.clock,
    )
    assert await bench.rotation.rotate_all() >= 1
    assert "0.log.20260101-000000" in bench.names()


async def test_ended_containers_are_left_alone(tmp_path: Path) -> None:
    bench = _Bench(tmp_path)
    bench.path.write_bytes(b"x" * 200)
    bench.container = replace(bench.container, state=RunState.EXITED)
    assert await bench.rotation.rotate_all() == 0


async def test_logs_are_checked_every_interval(tmp_path: Path) -> None:
    bench = _Bench(tmp_path)
    task = asyncio.create_task(bench.rotation.run())
    bench.path.write_bytes(b"x" * 100)
    await bench.clock.advance(9)
    assert bench.runtime.reopened == []
    await until(lambda: bench.runtime.reopened == ["id"], clock=bench.clock, advance=10)
    bench.path.write_bytes(b"x" * 100)
    await until(lambda: bench.runtime.reopened == ["id", "id"], clock=bench.clock, advance=10)
    task.cancel()
    assert len(bench.names()) >= 2


async def test_negative_size_is_no_rotation(tmp_path: Path) -> None:
    bench = _Bench(tmp_path, replace(_SETTINGS, max_size=-1))
    bench.path.write_bytes(b"x" * 1000)
    task = asyncio.create_task(bench.rotation.run())
    await bench.clock.advance(60)
    task.cancel()
    assert bench.names() == ["0.log"]


def test_one_file_is_too_few(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="containerLogMaxFiles"):
        _Bench(tmp_path, replace(_SETTINGS, max_files=1))
