"""`python -m controlplane.scoreboard [RESULTS ...]`: makes docs/scoreboard.md and docs/scoreboard.json again, from the
latter and what is in these folders (`--results` of the runs that made them, of other checkouts or machines).

Also after a change of rules, groups or explanations; nothing is listed and nothing runs.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from controlplane.scoreboard.edge import store
from controlplane.scoreboard.plan import results
from controlplane.scoreboard.work.pages import read_pages, write_pages


def main(folders: list[str]) -> None:
    """Raises Invalid when the document cannot be read."""
    pages = Path(__file__).resolve().parents[2] / "docs"
    board = read_pages(pages)
    if board is None:
        return
    more = [run for folder in folders for run in store.load(Path(folder))]
    runs = results.gather([*board.runs.values(), *more], board.partition.parts, board.kubernetes)
    write_pages(pages, replace(board, runs=runs))


if __name__ == "__main__":
    main(sys.argv[1:])
