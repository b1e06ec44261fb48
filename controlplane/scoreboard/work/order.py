"""What a run of the scoreboard was asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from controlplane.cluster.edge.roots import cache_root
from controlplane.scoreboard.model import Program


@dataclass(frozen=True, slots=True)
class Order:
    """Which parts to run, where their results are, and where the pages go (nowhere if None).

    `name` is that of the clusters; `programs`: whose parts may run, the lists of others are taken from the pages;
    `again`: also parts that have a result; `minutes`: no part is begun after that time (0: no limit); `at_once`: parts
    of the node suite that may run at the same time.
    """

    name: str
    commit: str
    project: str
    python: str
    programs: tuple[Program, ...] = tuple(Program)
    parts: str = ""
    again: bool = False
    minutes: int = 0
    procs: int = 4
    at_once: int = 1
    results: Path | None = None
    pages: Path | None = None
    binaries_dir: Path | None = None

    @property
    def root(self) -> Path:
        return self.results or Path(cache_root(), "scoreboard")

    @property
    def names(self) -> tuple[str, ...]:
        """Of the clusters that there may be at the same time."""
        return (self.name, *(f"{self.name}-{number}" for number in range(2, self.at_once + 1)))
