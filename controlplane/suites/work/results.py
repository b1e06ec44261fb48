"""The folder where a suite writes, and its results in results.json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from controlplane.machine.edge import files
from controlplane.suites.plan.conformance import Result
from nodelib.errors import Temporary


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run and the folder of its files; `listed` has the names of a dry run."""

    results: tuple[Result, ...]
    directory: Path
    seconds: float
    status: int
    listed: tuple[str, ...] = ()


def make_folder(directory: Path) -> None:
    """Raises NodewrightError for a folder that another user owns."""
    directory.mkdir(parents=True, exist_ok=True)
    files.refuse_of_others(directory, "write the results of a suite")


def write(directory: Path, results: tuple[Result, ...], seconds: float, status: int) -> Report:
    """Write results.json."""
    data = {"seconds": round(seconds, 1), "status": status, "results": [asdict(one) for one in results]}
    files.write(str(directory / "results.json"), json.dumps(data, indent=1), 0o644)
    return Report(results, directory, seconds, status)


def missing(what: str, suite: str, status: int, last_lines: Iterable[str], log: Path) -> Temporary:
    """The error for a suite that ended and left no `what`."""
    return Temporary(
        f"the suite exited with status {status} and without a {what}: {' | '.join(last_lines)}",
        obj=suite,
        action=f"See its log: {log}",
    )
