"""`nodewright addons`: which add-ons a cluster has; adds and removes them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace

from cli.clusters import reachable
from cli.display.quiet import note
from cli.display.steps import Display
from cli.display.terminal import new_console, new_table
from cli.errors import need_root
from cli.project import PROJECT
from controlplane.cluster.model import Cluster
from controlplane.cluster.plan import addons
from controlplane.cluster.work import addons as work
from controlplane.up.request import Request
from controlplane.up.work import up
from nodelib.clock import SystemClock
from nodelib.errors import WrongUsage
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient


def show(name: str, *, as_json: bool) -> None:
    """Print a table, or JSON."""
    found = asyncio.run(_read(reachable(name)))
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
        return
    table = new_table("ADDON", "STATE", "WHAT")
    for one in found:
        state = ("ready" if not one.waits_for else f"not ready: {one.waits_for}") if one.added else "not added"
        table.add_row(one.name, state, one.about)
    new_console().print(table)


async def _read(cluster: Cluster) -> list[work.AddonState]:
    async with _client(cluster, 3) as client:
        return await work.read(cluster, client)


def _client(cluster: Cluster, timeout: float) -> KubeClient:
    return KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-addons", timeout=timeout)


def check(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each once. Raises WrongUsage for one that is no add-on."""
    unknown = [name for name in names if name not in addons.TABLE]
    if unknown:
        raise WrongUsage(
            "there is no add-on of this name",
            obj=", ".join(unknown),
            step="addons",
            action=f"Choose from: {', '.join(sorted(addons.TABLE))}.",
        )
    return tuple(dict.fromkeys(names))


def add(name: str, names: Sequence[str], *, plain: bool) -> None:
    """Add add-ons, or mend those that are there."""
    chosen = check(names)
    need_root("addons")
    known = reachable(name)
    there = [one for one in chosen if one in known.options.addon_names]
    request = Request(
        name=name,
        options=replace(known.options, addons=",".join((*known.options.addon_names, *chosen))),
        explicit=frozenset({"addons"}),
        project=str(PROJECT),
        python=sys.executable,
        environment=os.environ,
    )
    display = Display(plain=plain or None)
    with display:
        cluster = asyncio.run(up(request, display, SystemClock())).cluster
    note(f"\nCluster {name}: {', '.join(chosen)} ready ({display.elapsed:.1f} s).")
    for one in there:
        note(f"  {one} was there already.")
    for one in chosen:
        note(f"  {addons.TABLE[one].hint(cluster)}")


def remove(name: str, names: Sequence[str], *, plain: bool) -> None:
    """Remove add-ons; one that the cluster does not have is no failure."""
    chosen = check(names)
    need_root("addons")
    cluster = reachable(name)
    with Display(plain=plain or None) as display:
        had = asyncio.run(_remove(cluster, chosen, display))
    for one in chosen:
        note(f"{one} is removed from {name}." if one in had else f"Nothing to remove: {name} does not have {one}.")


async def _remove(cluster: Cluster, names: Sequence[str], display: Display) -> list[str]:
    async with _client(cluster, 30) as client:
        return [one for one in names if await work.remove(cluster, one, client, display, SystemClock())]
