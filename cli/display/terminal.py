"""Consoles and tables for the commands' output."""

from __future__ import annotations

import io
import sys
from typing import IO, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from nodelib.text import visible


class _Console(Console):
    """Rich takes bells and the like out of a text, but not the escape character."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(visible(text), **how)


def new_console(out: IO[str] | None = None, *, width: int | None = None) -> Console:
    """A console that prints text as it is: messages of runtimes contain brackets, which rich would take for styles."""
    return _Console(file=out or sys.stdout, width=width, markup=False, highlight=False)


class Collected(_Console):
    """Prints nothing: `parts` are the renderables, to be shown by another console, at its width."""

    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), markup=False, highlight=False)
        self.parts: list[RenderableType] = []

    def print(self, *objects: Any, style: Any = None, **_: Any) -> None:
        for one in objects:
            self.parts.append(Text(visible(one), style or "", overflow="fold") if isinstance(one, str) else one)


def new_table(*columns: str) -> Table:
    """A table without lines; long cells are wrapped."""
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
