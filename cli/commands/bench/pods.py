"""`nodewright bench pods`: our kubelet and, with --peer, upstream's in turn, each on a cluster of its own."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from cli.bench import plot
from cli.bench.pods import Plan, PodBench, Result
from cli.bench.pods_table import rows
from cli.bench.reactions import NodePlace
from cli.commands.bench.publish import DOCS, show, write_section
from cli.display.steps import Display
from cli.errors import need_root
from cli.project import PROJECT
from controlplane.cluster.model import KUBERNETES_VERSION, Cluster, Options
from controlplane.cluster.work.down import down
from controlplane.supervisor.edge import units
from controlplane.up.request import Request
from controlplane.up.work import up
from nodelib.clock import SystemClock
from nodelib.errors import NotFound
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient

_PLOT = "bench-pods.svg"
_IMAGE = "registry.k8s.io/pause:3.10.2"


def run(*, peer: bool, plan: Plan, write: bool, plain: bool, binaries: Path | None) -> None:
    """Measure, print the table, and write it into docs/benchmarks.md if `write`."""
    need_root("bench")
    with Display(plain=plain or None) as display:
        ours, theirs = asyncio.run(_both(plan, peer, display, binaries))
    table = rows(ours, theirs)
    show(table)
    if write:
        picture = plot.ratios(table, "Time, CPU and memory, upstream's kubelet as 1 (orange: target)")
        if picture:
            (DOCS / _PLOT).write_text(picture)
        write_section(table, "Pods", peer=KUBERNETES_VERSION, note=_note(plan, pictured=bool(picture)))


def _note(plan: Plan, *, pictured: bool) -> str:
    text = (
        f"`./nodewright bench pods --peer upstream --write`: {plan.serial} pods one at a time, {plan.rounds} rounds of "
        f"{plan.together}, {plan.bursts} bursts of {plan.burst} (medians), {plan.deaths} killed containers, "
        f"{plan.changes} changes of a ConfigMap; ours first, then the peer, each on a cluster of its own. "
        "How each figure is taken: `cli/bench/pods.py`, `cli/bench/reactions.py`."
    )
    return f"{text}\n\n![ratios]({_PLOT})" if pictured else text


async def _both(plan: Plan, peer: bool, display: Display, binaries: Path | None) -> tuple[Result, Result | None]:
    ours = await _measure("bench-ours", "nodewright", plan, display, binaries)
    theirs = await _measure("bench-peer", "upstream", plan, display, binaries) if peer else None
    return ours, theirs


async def _measure(name: str, maker: str, plan: Plan, display: Display, binaries: Path | None) -> Result:
    """Create a cluster of one node, measure, and remove it again, also after a failure."""
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
        cluster = (await up(request, display, clock)).cluster
        async with KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-bench") as client:
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
        action = "See its log below the node's log/ folder."
        raise NotFound("not running", obj=program, step="measure its memory", action=action)
    return int(row["pid"])
