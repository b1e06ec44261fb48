"""Columns and paragraphs of text that fit a terminal, where a word is never broken: names and paths can be copied."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING

from nodelib.text import visible

if TYPE_CHECKING:
    from rich.console import Console

_GAP = "  "


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """A line for each row, its cells below those of the first row; a cell is never wrapped."""
    every = [tuple(row) for row in rows]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    return [_GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in every]


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines between words, later lines indented a little more; a longer word has a line of its own."""
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text,
        width,
        initial_indent="",
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [""]


def paragraph(console: Console, first: str, text: str, first_style: str = "", style: str = "") -> None:
    """The word `first`, and beside it the text, whose later lines begin below the first one's."""
    from rich.text import Text

    text = visible(text)
    parts = wrapped(text, max(20, console.width - len(first))) if console.is_terminal else [text]
    for number, part in enumerate(parts):
        lead = first if number == 0 else " " * len(first)
        console.print(Text.assemble((lead, first_style), (part.strip(), style)), soft_wrap=True)


def say(out: IO[str], lines: Iterable[str]) -> None:
    """Print the lines. A terminal gets them wrapped, a pipe as they are, since scripts read line by line."""
    width = shutil.get_terminal_size().columns if out.isatty() else 0
    for line in lines:
        for part in wrapped(line, width) if width else (line,):
            print(visible(part), file=out)
