"""`nodewright clusters`: the clusters of this machine; `stop` and `start` one of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from rich.console import Console

from cli.clusters import find
from cli.display.quiet import note
from cli.display.steps import Display
from cli.display.terminal import new_console, new_table
from cli.errors import need_root
from controlplane.cluster.advice import ours
from controlplane.cluster.work.overview import BROKEN, Overview, read_all
from nodelib.clock import SystemClock
from nodelib.durations import age


def run(*, as_json: bool) -> None:
    """List them; exit status 1 when one of them is broken."""
    found, now = asyncio.run(read_all()), time.time()
    if as_json:
        print(json.dumps([document(one, now) for one in found], indent=1))
    else:
        show(found, now, new_console())
    if any(one.state == BROKEN for one in found):
        raise SystemExit(1)


def show(found: Sequence[Overview], now: float, console: Console) -> None:
    """Print a table, then what is wrong with those that are broken."""
    if not found:
        console.print("There are no clusters on this machine. `./nodewright up` creates one.", soft_wrap=True)
        return
    table = new_table("NAME", "STATE", "READY", "KUBERNETES", "AGE", "MEMORY")
    for one in found:
        ready = f"{one.ready}/{one.nodes}"
        memory = f"{one.memory >> 20}Mi" if one.processes else "-"
        since = age(now - one.created) if one.created else "-"
        table.add_row(one.name, one.state, ready, one.version or "-", since, memory)
    console.print(table)
    for one in found:
        if one.problem:
            console.print(f"{one.name}: {one.problem}", soft_wrap=True)


def document(one: Overview, now: float) -> dict[str, object]:
    """A cluster as JSON."""
    created = datetime.fromtimestamp(int(one.created), UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if one.created else ""
    return {
        "name": one.name,
        "state": one.state,
        "problem": one.problem,
        "nodes": one.nodes,
        "ready_nodes": one.ready,
        "kubernetes": one.version,
        "created": created,
        "age_seconds": int(now - one.created) if one.created else None,
        "processes": one.processes,
        "memory_bytes": one.memory,
        "context": one.context,
        "subnet": one.subnet,
    }


def stop(name: str, grace: int, *, plain: bool) -> None:
    """Stop the cluster `name`."""
    from controlplane.cluster.work.stop import stop as stop_cluster  # with gRPC, which `clusters` has no use for

    need_root("stop")
    cluster = find(name)
    with Display(plain=plain or None) as display:
        done = asyncio.run(stop_cluster(cluster, grace, display, SystemClock()))
    said = f"{done.containers} containers ended, {display.elapsed:.1f} s"
    note(f"Cluster {name} is stopped ({said}). Its state is on the disk; this machine may be restarted.")
    note(f"{ours(name, 'start')} brings it back.")


def start(name: str, *, plain: bool) -> None:
    """Start the cluster `name` again: what `up` does with one that exists."""
    from cli.commands import up

    need_root("start")
    up.run(find(name).name, {}, plain=plain)
