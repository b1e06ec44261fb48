"""What tracing costs the agent: `python -m tests.bench.tracing_cost [ROUNDS PODS [STANDING]]`.

Four nodes do the same at the same time: two trace every pod to a collector, two trace none. In each round every node
gets as many pods with a probe, a hook and two volumes; the agents' CPU is read before, when all are Ready, and when all
are gone. What else the machine does meets all four alike. After half of the rounds a second cluster changes places:
the same nodes of four differ by two percent even where none traces.

With STANDING, as many pods with a probe every five seconds stay on each node all the time, and a round takes ten
seconds at least: a node that mostly runs pods, and starts some.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from tests.builders.pods import manifest, sleeper
from tests.cluster.command_line import raised
from tests.cluster.world import World, cpu_seconds, is_ready
from tests.fakes.collector import collector

NAME, PORT = "tcost", 14318
ROUND = 10.0  # seconds
NODES = ("node2", "node3", "node4", "node5")
PLACES = (("node3", "node5"), ("node2", "node4"))  # that trace, in one half and the other
_KUBELET = f'kubelet: {{tracing: {{endpoint: "10.89.94.1:{PORT}", samplingRatePerMillion: 1000000}}}}'
Cpu = dict[str, tuple[float, float]]  # by node, until all pods were Ready and until all were gone


def cluster_file(traced: Sequence[str]) -> str:
    nodes = "".join(f"- {{name: {node}{', ' + _KUBELET if node in traced else ''}}}\n" for node in ("node1", *NODES))
    return (
        f"apiVersion: nodewright.io/v1alpha1\nkind: Cluster\nname: {NAME}\nnodes:\n{nodes}"
        "networking: {nodeSubnet: 10.89.94.0/24, uplink: false}\n"
    )


async def round_of(world: World, number: int, pods: int, seconds: float) -> Cpu:
    end = time.monotonic() + seconds
    pids = {node: world.pid(node, "agent") for node in NODES}
    before = {node: cpu_seconds(pid) for node, pid in pids.items()}
    turns = [NODES[(number + one) % 4 :] + NODES[: (number + one) % 4] for one in range(pods)]  # each is first as often
    names = {f"cost-{number}-{node}-{one}": node for one, turn in enumerate(turns) for node in turn}
    for name, node in names.items():
        await world.create(_pod(name, node))
    for name in names:
        await world.until(name, is_ready, "Ready")
    ready = {node: cpu_seconds(pid) for node, pid in pids.items()}
    for name in names:
        await world.delete(name)
    for name in names:
        await world.gone(name)
    await asyncio.sleep(end - time.monotonic())
    over = {node: cpu_seconds(pid) for node, pid in pids.items()}
    return {node: (ready[node] - before[node], over[node] - before[node]) for node in NODES}


def _pod(name: str, node: str) -> dict[str, object]:
    hook = {"postStart": {"exec": {"command": ["true"]}}}
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 5}
    mount = [{"name": "one", "mountPath": "/one"}, {"name": "two", "mountPath": "/two"}]
    main = sleeper(lifecycle=hook, readinessProbe=probe, volumeMounts=mount)
    volumes = [{"name": "one", "emptyDir": {}}, {"name": "two", "emptyDir": {}}]
    return manifest(name, main, volumes=volumes, nodeName=node, terminationGracePeriodSeconds=0)


def _collect(taken: object) -> None:
    """A process of its own takes the spans, and counts them."""

    async def run() -> None:
        async with collector(f"10.89.94.1:{PORT}") as there:
            while True:
                await asyncio.sleep(0.5)
                taken.value += len(there.spans)  # type: ignore[attr-defined]
                there.spans.clear()
                there.resources.clear()

    asyncio.run(run())


async def _stand(world: World, pods: int) -> None:
    names = {f"standing-{node}-{one}": node for one in range(pods) for node in NODES}
    for name, node in names.items():
        await world.create(_pod(name, node))
    for name in names:
        await world.until(name, is_ready, "Ready")


async def measured(traced: Sequence[str], rounds: int, pods: int, standing: int, taken: object) -> list[Cpu]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(cluster_file(traced))
        with raised(NAME, "--config", str(file), "--no-demo", timeout=600) as cluster:
            api = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-bench")
            process = get_context("spawn").Process(target=_collect, args=(taken,))
            process.start()
            try:
                world = World(cluster, api, "default", [])
                await _stand(world, standing)
                least = ROUND if standing else 0.0
                await round_of(world, 0, pods, least)  # warms up
                return [await round_of(world, number, pods, least) for number in range(1, rounds + 1)]
            finally:
                process.terminate()
                process.join(10)
                await api.close()


def report(found: Sequence[tuple[Sequence[str], Cpu]], pods: int, spans: int) -> None:
    """`found`: for each round, the nodes that traced and the CPU of all."""
    for phase, words in enumerate(("from creation to Ready", "over whole lives")):
        pairs = [
            (sum(cpu[node][phase] for node in traced), sum(cpu[node][phase] for node in NODES if node not in traced))
            for traced, cpu in found
        ]
        tracing, plain = (sum(side) for side in zip(*pairs, strict=True))
        ratios = [one / other - 1 for one, other in pairs]
        spread = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
        print(
            f"{words}: {tracing:.2f} s against {plain:.2f} s ({tracing / plain - 1:+.1%}); by rounds, median "
            f"{statistics.median(ratios):+.1%}, standard error {spread:.1%}"
        )
    print(f"{len(found)} rounds of {pods} pods on each node; {spans} spans taken; load {os.getloadavg()[1]:.1f}")


async def main(rounds: int, pods: int, standing: int = 0) -> None:
    taken = get_context("spawn").Value("q", 0)
    found: list[tuple[Sequence[str], Cpu]] = []
    for traced in PLACES:
        found += [(traced, cpu) for cpu in await measured(traced, rounds // 2, pods, standing, taken)]
    report(found, pods, taken.value)


if __name__ == "__main__":
    asyncio.run(main(*(int(one) for one in sys.argv[1:] or ("16", "8"))))
