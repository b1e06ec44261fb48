from __future__ import annotations

import sys
from pathlib import Path

import pytest

from controlplane.edge.streamed import run_lines
from nodelib.command import CommandError


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
