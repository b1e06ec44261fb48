"""`nodewright down`: removes a cluster."""

from __future__ import annotations

import asyncio
import sys

from cli.clusters import find
from cli.display.quiet import note
from cli.display.steps import Display
from cli.errors import need_root
from controlplane.cluster.advice import ours
from controlplane.cluster.edge import state
from controlplane.cluster.model import DEFAULT_NAME
from controlplane.cluster.work.down import down
from nodelib.text import visible


def run(name: str, *, plain: bool = False) -> None:
    """Remove the cluster `name` and print what was removed. Raises NotFound when it is not said which of several."""
    need_root("down")
    with Display(plain=plain or None) as display:
        removed = asyncio.run(down(name, display))
    for problem in removed.kubeconfigs:
        print(f"warning: the context of {name} is still in a kubeconfig: {visible(problem)}", file=sys.stderr)
    there = state.clusters()
    if not removed.anything and name == DEFAULT_NAME and len(there) > 1:
        find(name)  # raises NotFound, which asks which one is meant
    if removed.anything:
        ended = f"{removed.processes} processes of daemons and containers ended"
        note(f"Cluster {name} is removed ({ended}, {display.elapsed:.1f} s).")
    else:
        names = ", ".join(there)
        others = f"Existing clusters: {names} ({ours('NAME', 'down')})." if there else "There are no other clusters."
        note(f"Nothing to remove: there is no cluster {name} on this machine. {others}")


def run_all(*, plain: bool = False) -> None:
    """Remove every cluster of this machine. One that cannot be removed does not keep the others. Raises what failed."""
    need_root("down")
    names = state.clusters()
    if not names:
        note("Nothing to remove: there are no clusters on this machine.")
    failed: list[Exception] = []
    for name in names:
        try:
            run(name, plain=plain)
        except Exception as error:
            failed.append(error)
    if failed:
        raise ExceptionGroup("some clusters are not removed", failed)
