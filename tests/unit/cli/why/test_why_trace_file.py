"""`why --otlp FILE` in a folder of another user: root writes there, or nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.explain.model import Explanation, TimelineLine
from cli.why import trace
from cli.why.model import Explained
from nodelib.errors import Permanent

LINE = TimelineLine(at=1_767_225_600.0, kind="sandbox", step="sandbox", seconds=1.0, outcome="ok")
FOUND = Explanation(
    namespace="shop", name="web", uid="u", node="node1", phase="Running", summary="it runs", timeline=(LINE,)
)
POD = Explained(FOUND, by_node=True)


def test_a_file_is_written(tmp_path: Path) -> None:
    trace._write(POD, {}, 1_767_225_700.0, str(tmp_path / "trace.json"))
    assert (tmp_path / "trace.json").read_text().startswith('{"resourceSpans"')


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "trace.json").symlink_to(tmp_path / "precious")
    with pytest.raises(Permanent):
        trace._write(POD, {}, 1_767_225_700.0, str(tmp_path / "trace.json"))
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.timeout(30)
def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.json")
    with pytest.raises(Permanent):
        trace._write(POD, {}, 1_767_225_700.0, str(tmp_path / "trace.json"))
