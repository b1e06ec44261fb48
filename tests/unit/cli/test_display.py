from __future__ import annotations

import io

import pytest

from cli.display.steps import Display


def test_plain_lines_tell_each_step_its_detail_and_time() -> None:
    out = io.StringIO()
    with Display(plain=True, out=out) as display, display.step("links") as say:
        say("2 nodes")
    line = out.getvalue()
    assert "ok" in line
    assert "links (2 nodes)" in line
    assert line.rstrip().endswith("s]")


def test_a_failed_step_is_marked() -> None:
    out = io.StringIO()
    with Display(plain=True, out=out) as display, pytest.raises(ValueError), display.step("links"):
        raise ValueError
    assert "FAILED links" in out.getvalue()


def test_a_file_is_no_terminal() -> None:
    assert Display(out=io.StringIO()).plain


def test_the_live_table_shows_every_step() -> None:
    out = io.StringIO()
    with Display(plain=False, out=out) as display, display.step("links") as say:
        say("2 nodes")
    assert "links" in out.getvalue()
