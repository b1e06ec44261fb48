"""The published scoreboard: docs/scoreboard.json and docs/scoreboard.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from controlplane.machine.edge import files
from controlplane.scoreboard.edge import store
from controlplane.scoreboard.plan import document, explanations, page
from controlplane.scoreboard.plan.document import Board

_EXPLANATIONS = Path(__file__).parent.parent / "explanations.txt"


def read_pages(pages: Path | None) -> Board | None:
    """The scoreboard as it was published, with results of other machines, too. Raises Invalid for what is none."""
    path = pages / "scoreboard.json" if pages else None
    if path is None or not path.exists():
        return None
    return document.read(store.report(path), read_explanations())


def read_explanations() -> Mapping[str, str]:
    """Raises Invalid for a line that is none."""
    return explanations.read(_EXPLANATIONS.read_text(encoding="utf-8"))


def write_pages(pages: Path | None, board: Board) -> None:
    """Write scoreboard.md and scoreboard.json."""
    if pages is not None:
        files.write(str(pages / "scoreboard.json"), document.write(board), 0o644)
        files.write(str(pages / "scoreboard.md"), page.page(board), 0o644)
