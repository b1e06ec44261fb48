"""How the commands write to a terminal."""

from __future__ import annotations

import sys
from typing import IO

from rich.console import Console


def new_console(out: IO[str] | None = None, *, width: int | None = None) -> Console:
    """Text is shown as it is: what nodes and runtimes say has brackets in it, which rich would take for styles."""
    return Console(file=out or sys.stdout, width=width, markup=False, highlight=False)
