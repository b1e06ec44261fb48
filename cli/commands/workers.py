"""How workers share the tests of a tier: how many there are, what each run of pytest is given, and what came of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from nodelib.errors import Invalid

FAILED, NO_TESTS = 1, 5  # pytest's exit status when tests failed, and when it collected nothing
_WORKERS = "NODEWRIGHT_TEST_WORKERS"


@dataclass(frozen=True, slots=True)
class Share:
    """How workers share the tests of a tier when the whole of it is run, each worker a process of its own.

    `by`: an argument of pytest-xdist's --dist. Tests of a file may share a fixture that is costly, and names.
    `gib`: memory that there is to be for each worker. `spare`: workers beyond one for each core, for tests that often
    wait. `most`: no more workers than this; 0: no bound. `alone`: tests marked `alone` run after the others, with
    nothing beside them. `lent`: a variable that names a cluster for all tests; then one worker runs.
    """

    by: str
    gib: int = 1
    spare: int = 0
    most: int = 0
    alone: bool = False
    lent: str = ""


def parts(share: Share | None, count: int) -> list[tuple[str, ...]]:
    """The runs of pytest that a whole tier is: one, or one by `count` workers and one of the tests that are `alone`."""
    if share is None or count == 1:
        return [()]
    by_workers = ("-n", str(count), "--dist", share.by)
    if not share.alone:
        return [by_workers]
    return [(*by_workers, "-m", "not soak and not alone"), ("-m", "alone and not soak")]


def both(first: int, second: int) -> int:
    """pytest's exit status of two runs together."""
    return second if first in (0, NO_TESTS) and second != NO_TESTS else first


def workers(share: Share, cores: int, memory: int, asked: str = "") -> int:
    """How many share a tier on a machine with these cores and so much memory (bytes), if nobody has said (`asked`)."""
    if asked:
        if not asked.isdecimal() or int(asked) < 1:
            raise Invalid(f"{asked!r} is no number of workers", obj=_WORKERS, step="test", action="Give 1 or more.")
        return int(asked)
    if cores == 1:
        return 1
    bounds = [cores + share.spare, (memory >> 30) // share.gib, *([share.most] if share.most else [])]
    return max(1, min(bounds))


def workers_here(share: Share) -> int:
    if os.environ.get(share.lent):
        return 1
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))
    return workers(share, len(os.sched_getaffinity(0)), available, os.environ.get(_WORKERS, ""))
