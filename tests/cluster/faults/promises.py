"""Words of the fault harness: a fault, what must hold, and what came of it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.cluster.world import World

SEED = int(os.environ.get("NODEWRIGHT_SEED", "1"))


@dataclass(frozen=True)
class Site:
    """Where faults strike: a node of a cluster, and the seed of all choices at random."""

    world: World
    node: str
    seed: int = SEED


@dataclass(frozen=True)
class Fault:
    """One way in which one edge fails, and the promises about it.

    Always: running containers go on, answer every request and are not restarted; the daemon neither ends nor reports an
    error that it did not expect; afterwards new pods start, deleted ones are gone, and a Service created meanwhile
    answers. `starts_pods`: a pod created meanwhile becomes Ready before the fault ends. `keeps_ready`: no running pod
    loses its readiness. `may_log_errors`: tracebacks may be in the log, as when nothing can be opened. `said`: a
    pattern (re) that the log of `program` must match.
    """

    name: str
    edge: str
    inject: Callable[[], AbstractAsyncContextManager[object]]
    program: str = "agent"
    lasts: float = 6.0  # seconds
    starts_pods: bool = False
    keeps_ready: bool = True
    restarts_program: bool = False
    may_log_errors: bool = False
    said: str = ""
    well_within: float = 60.0  # seconds after its end


@dataclass
class Result:
    """What one fault did. `broken` is empty when every promise held."""

    name: str
    edge: str
    requests: int = 0
    pod_ready: float = 0.0  # seconds from the creation of a pod during the fault
    well_after: float = 0.0  # seconds from the end of the fault
    broken: list[str] = field(default_factory=list)


def report(results: list[Result]) -> None:
    """Append to the file that NODEWRIGHT_FAULTS names, one JSON object a line."""
    path = os.environ.get("NODEWRIGHT_FAULTS", "")
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            for result in results:
                file.write(json.dumps(asdict(result)) + "\n")
