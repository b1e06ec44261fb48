"""Long commands: their output, and how they end when cancelled."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from controlplane.machine.edge import streamed
from controlplane.machine.edge.streamed import run_lines
from controlplane.supervisor.edge.procfs import start_time
from nodelib.command import CommandError
from tests.waiting import until


async def test_pieces_come_before_their_line_ends_and_the_log_has_it_all(tmp_path: Path) -> None:
    script = "import sys\nfor part in ('••', '• [FAILED] x\\n', 'last'):\n print(part, end='', flush=True)\nsys.exit(3)"
    lines: list[str] = []
    pieces: list[str] = []
    log = tmp_path / "log"
    status = await run_lines([sys.executable, "-c", script], log=str(log), on_line=lines.append, on_text=pieces.append)
    assert status == 3
    assert lines == ["••• [FAILED] x", "last"]
    assert "".join(pieces) == log.read_text() == "••• [FAILED] x\nlast"


async def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot start"):
        await run_lines(["/no/such"], log=str(tmp_path / "log"), on_line=print, on_text=print)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("trap 'yes | head -c 300000; exit 0' INT", id="says more than its pipe takes"),
        pytest.param("trap '' INT", id="does not listen"),
    ],
)
async def test_a_command_that_is_cancelled_ends_with_all_of_its_group(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed, "_PATIENCE", 2.0)
    pids: list[int] = []
    argv = ["sh", "-c", f"{script}; echo $$; while :; do sleep 0.1; done"]
    run = run_lines(
        argv, log=str(tmp_path / "log"), on_line=lambda line: pids.append(int(line)), on_text=lambda text: None
    )
    task = asyncio.create_task(run)
    await until(lambda: bool(pids))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not start_time(pids[0]))
