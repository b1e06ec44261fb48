"""`python -m controlplane.scoreboard`: makes docs/scoreboard.md and docs/scoreboard.json again, from the latter.

After a change of rules, groups or explanations; nothing is listed and nothing runs.
"""

from __future__ import annotations

from pathlib import Path

from controlplane.scoreboard.work.pages import read_pages, write_pages


def main() -> None:
    """Raises Invalid when the document cannot be read."""
    pages = Path(__file__).resolve().parents[2] / "docs"
    board = read_pages(pages)
    if board is not None:
        write_pages(pages, board)


if __name__ == "__main__":
    main()
