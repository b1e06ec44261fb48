"""`nodewright bench`: which program measures what; here the one of `bench pods`.

That is our kubelet and, with --peer, upstream's in turn, on clusters of their own. The others have files beside it.
"""

from __future__ import annotations

import asyncio
import datetime
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from rich.table import Table

from cli.bench import plot, report
from cli.bench.pods import Plan, PodBench, Result
from cli.bench.reactions import NodePlace
from cli.choices import Bench
from cli.display import Display
from cli.errors import need_root
from cli.project import PROJECT
from cli.terminal import new_console
from controlplane.cluster.model import KUBERNETES_VERSION, Cluster, Options
from controlplane.cluster.work.down import down
from controlplane.supervisor.edge import units
from controlplane.up.work import Request, up
from nodelib.clock import SystemClock
from nodelib.command import run_sync
from nodelib.errors import NotFound
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient

_PLOT = "bench-pods.svg"
_IMAGE = "registry.k8s.io/pause:3.10.2"


@dataclass(frozen=True, slots=True)
class Order:
    """The options of the command; each program takes those that it knows."""

    peer: bool
    burst: int
    quick: bool
    sizes: str
    modes: str
    steps: str
    dense: bool
    limit: float
    minutes: float
    seed: int
    write: bool
    binaries: Path | None
    plain: bool


def run(what: Bench, order: Order) -> None:
    """One program and no other."""
    # Imported where they are wanted: they take the table and the commit from this file.
    match what:
        case Bench.PODS:
            plan = replace(Plan.quick() if order.quick else Plan(), burst=order.burst)
            pods(peer=order.peer, plan=plan, write=order.write, plain=order.plain, binaries=order.binaries)
        case Bench.NETWORK:
            from cli.bench import network
            from cli.commands import bench_network

            bench_network.run(peer=order.peer, plan=network.Plan(), write=order.write, plain=order.plain)
        case Bench.SERVICES:
            from cli.bench.services.measure import Effort
            from cli.commands import bench_services

            wanted = bench_services.wish(
                peer=order.peer,
                modes=order.modes,
                sizes=order.sizes,
                steps=order.steps,
                dense=order.dense,
                effort=Effort(cold_limit=order.limit),
            )
            bench_services.services(wanted, write=order.write, plain=order.plain, binaries=order.binaries)
        case Bench.SOAK:
            from cli.commands import bench_soak

            differed = bench_soak.soak(
                modes=order.modes,
                services=1000,
                minutes=order.minutes,
                seed=order.seed,
                plain=order.plain,
                binaries=order.binaries,
            )
            raise SystemExit(1 if differed else 0)


def pods(*, peer: bool, plan: Plan, write: bool, plain: bool, binaries: Path | None) -> None:
    """Measure, print the table, and put it into docs/benchmarks.md when asked to."""
    need_root("bench")
    with Display(plain=plain or None) as display:
        ours, theirs = asyncio.run(_both(plan, peer, display, binaries))
    table = report.rows(ours, theirs)
    show(table)
    if write:
        picture = plot.ratios(table, "Time, CPU and memory, upstream's kubelet as 1 (orange: target)")
        if picture:
            (PROJECT / "docs" / _PLOT).write_text(picture)
        write_section(table, "Pods", peer=KUBERNETES_VERSION, note=_note(plan, pictured=bool(picture)))


def _note(plan: Plan, *, pictured: bool) -> str:
    told = (
        f"`./nodewright bench pods --peer upstream --write`: {plan.serial} pods one at a time, {plan.rounds} rounds of "
        f"{plan.together}, {plan.bursts} bursts of {plan.burst} (medians), {plan.deaths} killed containers, "
        f"{plan.changes} changes of a ConfigMap; ours first, then the peer, each on a cluster of its own. "
        "How each figure is taken: `cli/bench/pods.py`, `cli/bench/reactions.py`."
    )
    return f"{told}\n\n![ratios]({_PLOT})" if pictured else told


async def _both(plan: Plan, peer: bool, display: Display, binaries: Path | None) -> tuple[Result, Result | None]:
    ours = await _measure("bench-ours", "nodewright", plan, display, binaries)
    theirs = await _measure("bench-peer", "upstream", plan, display, binaries) if peer else None
    return ours, theirs


async def _measure(name: str, maker: str, plan: Plan, display: Display, binaries: Path | None) -> Result:
    """Raise a cluster of one node, measure, remove it, also after a failure."""
    options = Options(nodes=1, agent=maker, proxy=maker, uplink=False, demo=False)
    request = Request(
        name=name,
        options=options,
        explicit=frozenset({"nodes", "agent", "proxy", "uplink", "demo"}),
        binaries_dir=binaries,
        project=str(PROJECT),
        python=sys.executable,
    )
    clock = SystemClock()
    try:
        cluster, _ = await up(request, display, clock)
        client = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-bench")
        try:
            with display.step(f"pods under {maker}") as say:
                bench = PodBench(
                    client,
                    clock,
                    node=_place(cluster),
                    image=_IMAGE,
                    proxy=_pid(cluster, "proxy"),
                )
                return await bench.run(plan, say)
        finally:
            await client.close()
    finally:
        await down(name, display)


def _place(cluster: Cluster) -> NodePlace:
    node, client = cluster.nodes[0], f"{cluster.pki_dir}/apiserver-kubelet-client"

    def agent() -> int:
        row = units.programs(cluster.unit_dir(node.name)).get("agent")
        return int(row["pid"]) if row and row["alive"] else 0

    return NodePlace(
        name=node.name,
        address=node.address,
        cgroup=f"{cluster.cgroup}/{node.name}/kubepods",
        kubelet_dir=f"{cluster.node_dir(node.name)}/kubelet",
        runtime_dir=f"{cluster.node_dir(node.name)}/containerd",
        client_cert=(f"{client}.crt", f"{client}.key"),
        agent=agent,
    )


def _pid(cluster: Cluster, program: str) -> int:
    row = units.programs(cluster.unit_dir(cluster.nodes[0].name)).get(program)
    if row is None or not row["alive"]:
        raise NotFound("not running", obj=program, step="read its figures", action="See its log under the node's log/.")
    return int(row["pid"])


def show(table: list[report.Row]) -> None:
    """On the terminal."""
    shown = Table(*report.HEAD)
    for row in table:
        shown.add_row(*row.cells)
    new_console().print(shown)


def write_section(table: list[report.Row], what: str, *, peer: str, note: str = "") -> None:
    """Put the table into docs/benchmarks.md, in its old one's place; `peer` says what the second column is."""
    path = PROJECT / "docs" / "benchmarks.md"
    heading = f"{what}, {datetime.date.today()}, commit {commit()}, upstream {peer}"
    text = path.read_text() if path.exists() else "# Benchmarks\n"
    path.write_text(report.placed(text, report.markdown(table, heading, note), what))


def commit() -> str:
    """The commit of this tree, short."""
    done = run_sync(["git", "-C", str(PROJECT), "rev-parse", "--short", "HEAD"], check=False)
    return done.text.strip() or "unknown"
