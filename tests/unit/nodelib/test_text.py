"""What others write, made fit for a log line, an Event or a status."""

from __future__ import annotations

import io
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib.daemons import log
from nodelib.text import cut, harmless, one_line

_ANY = st.text(st.characters(), max_size=300)


@given(_ANY, st.integers(0, 400))
def test_one_line_is_short_and_plain(text: str, most: int) -> None:
    shown = one_line(text, most)
    assert len(shown.encode()) <= most
    assert not any(char in shown for char in "\n\r\x1b\x00\x9b\u2028\u202e")


@given(_ANY, st.integers(0, 400))
def test_cut_keeps_what_fits(text: str, most: int) -> None:
    shown = cut(text, most)
    if len(text.encode(errors="replace")) <= most:
        assert shown == text
    else:
        assert len(shown.encode(errors="replace")) <= most


@pytest.mark.parametrize(
    ("text", "line", "lines"),
    [
        pytest.param("a\nb\tc", "a\\nb\\tc", "a\nb\tc", id="line feeds and tabs"),
        pytest.param("\x1b[31mred\x07", "\\x1b[31mred\\x07", "\\x1b[31mred\\x07", id="escapes of a terminal"),
        pytest.param("a\u202eb", "a\\u202eb", "a\\u202eb", id="reordering"),
        pytest.param("a\u200fb\u061c", "a\\u200fb\\u061c", "a\\u200fb\\u061c", id="marks that reorder what is beside"),
        pytest.param("a\U000e0062", "a\\U000e0062", "a\\U000e0062", id="letters that nobody sees"),
        pytest.param("a\udc80b", "a\\udc80b", "a\\udc80b", id="a lone surrogate"),
        pytest.param("grün 木", "grün 木", "grün 木", id="letters"),
    ],
)
def test_control_characters_are_shown(text: str, line: str, lines: str) -> None:
    assert (one_line(text, 100), harmless(text, 100)) == (line, lines)


def test_the_end_of_a_long_text_stays() -> None:
    shown = cut("begin" + "x" * (16 << 20) + "cause", 200)
    assert shown.startswith("begin") and shown.endswith("cause") and "16777226 characters" in shown


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    made, root = io.StringIO(), logging.getLogger()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    log.setup(log.LogOptions(), "agent")
    return made


def test_a_log_line_is_one_line_of_at_most_4_kib(written: io.StringIO) -> None:
    """Otherwise the output of a container forges lines of the agent, and one message fills the disk."""
    logging.getLogger("x").warning(
        "pod %s: %s", "p", "\n2026-01-01T00:00:00.000Z I agent forged: line\x1b[2J" * (1 << 19)
    )
    text = written.getvalue()
    assert text.count("\n") == 1 and text.endswith("\n")
    assert len(text.encode()) <= 4096 and "\x1b" not in text


def test_a_traceback_keeps_its_lines(written: io.StringIO) -> None:
    try:
        raise ValueError("bad\x1b[2J" + "y" * (1 << 20))
    except ValueError:
        logging.getLogger("x").exception("failed")
    text = written.getvalue()
    assert text.count("\n") > 2 and "ValueError" in text and "\x1b" not in text and len(text) < 32 * 1024
