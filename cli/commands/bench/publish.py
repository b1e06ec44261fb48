"""Prints the tables of benchmarks and writes them into docs/benchmarks.md."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from rich.table import Table

from cli import versions
from cli.bench import report
from cli.display.terminal import new_console
from cli.project import PROJECT

DOCS = PROJECT / "docs"
_DOCUMENT = DOCS / "benchmarks.md"


def show(table: Sequence[report.Row]) -> None:
    """Print a table of HEAD's columns."""
    shown = Table(*report.HEAD)
    for row in table:
        shown.add_row(*row.cells)
    new_console().print(shown)


def show_sized(table: Sequence[report.Row]) -> None:
    """Print a table of SIZED_HEAD's columns but the last, green where the target is met and red where it is missed."""
    shown = Table(*report.SIZED_HEAD[:-1])
    for row in table:
        shown.add_row(*row.cells[:-1], style={None: "", True: "green", False: "red"}[row.met])
    new_console().print(shown)


def write_section(table: Sequence[report.Row], what: str, *, peer: str, note: str = "") -> None:
    """Put the table into docs/benchmarks.md in place of the older one; `peer` says what the second column is."""
    heading = f"{what}, upstream {peer}, commit {commit()}, {datetime.date.today()}"
    text = _DOCUMENT.read_text() if _DOCUMENT.exists() else "# Benchmarks\n"
    _DOCUMENT.write_text(report.placed(text, report.markdown(table, heading, note), what))


def write_sized_section(table: Sequence[report.Row], heading: str, note: str) -> None:
    """Put the table of all sizes into docs/benchmarks.md, between its markers."""
    section = report.markdown(table, heading, note, report.SIZED_HEAD)
    _DOCUMENT.write_text(report.placed_between(_DOCUMENT.read_text(), section))


def commit() -> str:
    """The short commit of this tree."""
    return versions.commit() or "unknown"
