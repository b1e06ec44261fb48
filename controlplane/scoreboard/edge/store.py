"""What came of the parts that were run, a file for each part and maker."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from controlplane.machine.edge import files
from controlplane.scoreboard.model import Run

_LARGEST = 8 << 20  # bytes of a file of ours
_LARGEST_REPORT = 64 << 20  # bytes; the suite's reports have an entry for every spec, and what each one printed
_MOST = 10_000  # runs
_MARK = "cluster-"  # and its name


def folder(root: Path, part: str, maker: str, *, second: bool = False) -> Path:
    """Where the suite writes what it writes for that part."""
    return root / part / maker / ("second" if second else "")


def load(root: Path) -> list[Run]:
    """The runs that are there, also of parts that are gone; what cannot be read counts as not run."""
    found = (_read(path) for path in sorted(root.glob("*/*/run.json"))[:_MOST])
    return [run for run in found if run is not None]


def _read(path: Path) -> Run | None:
    try:
        if path.stat().st_size > _LARGEST:
            return None
        return Run.from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def report(path: Path) -> str:
    """A report of a suite. Raises ValueError for one that is far too large."""
    with path.open("rb") as file:
        data = file.read(_LARGEST_REPORT + 1)
    if len(data) > _LARGEST_REPORT:
        raise ValueError(f"larger than {_LARGEST_REPORT >> 20} MiB")
    return data.decode(errors="replace")


def mark(root: Path, cluster: str) -> None:
    """Say that the cluster of that name is the scoreboard's, until unmark()."""
    files.write(str(root / f"{_MARK}{cluster}"), "", 0o644)


def unmark(root: Path, cluster: str) -> None:
    """The cluster of that name is not the scoreboard's."""
    (root / f"{_MARK}{cluster}").unlink(missing_ok=True)


def marked(root: Path) -> tuple[str, ...]:
    """Names of the clusters that are the scoreboard's."""
    return tuple(sorted(path.name.removeprefix(_MARK) for path in root.glob(f"{_MARK}*")))


def save(root: Path, run: Run) -> None:
    """Keep the run, all of it or nothing."""
    path = folder(root, run.part, run.maker) / "run.json"
    files.write(str(path), json.dumps(asdict(run), indent=1) + "\n", 0o644)
