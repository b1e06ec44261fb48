"""`nodewright down`: removes a cluster."""

from __future__ import annotations

import asyncio

from cli.display.steps import Display
from cli.errors import need_root
from controlplane.cluster.edge import state
from controlplane.cluster.work.down import down


def run(name: str, *, plain: bool = False) -> None:
    """Remove the cluster `name` and print what was removed."""
    need_root("down")
    with Display(plain=plain or None) as display:
        removed = asyncio.run(down(name, display))
    if removed.anything:
        print(f"Cluster {name} is removed ({removed.processes} processes stopped, {display.elapsed:.1f} s).")
    else:
        there = ", ".join(state.clusters())
        print(
            f"Nothing to remove: there is no cluster {name} on this machine.",
            f"Existing clusters: {there} (`./nodewright down --name NAME`)."
            if there
            else "There are no other clusters.",
        )
