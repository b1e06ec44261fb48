"""What tracing costs the agent: `python -m tests.bench.tracing_cost [ROUNDS PODS]`.

One cluster, four nodes that do the same at the same time: two trace every pod to a collector, two trace none. In each
round every node gets as many pods with a probe, a hook and two volumes; the agents' CPU is read before, when all are
Ready, and when all are gone. What else the machine does meets all four alike.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from tests.builders.pods import manifest, sleeper
from tests.cluster.command_line import lent_or_raised
from tests.cluster.world import World, cpu_seconds, is_ready
from tests.fakes.collector import collector

NAME, PORT = "tcost", 14318
PLAIN, TRACED = ("node2", "node4"), ("node3", "node5")
_KUBELET = f'kubelet: {{tracing: {{endpoint: "10.89.94.1:{PORT}", samplingRatePerMillion: 1000000}}}}'
FILE = f"""
apiVersion: nodewright.io/v1alpha1
kind: Cluster
name: {NAME}
nodes:
- {{name: node1}}
- {{name: node2}}
- {{name: node3, {_KUBELET}}}
- {{name: node4}}
- {{name: node5, {_KUBELET}}}
networking: {{nodeSubnet: 10.89.94.0/24, uplink: false}}
"""


async def round_of(world: World, number: int, pods: int) -> dict[str, tuple[float, float]]:
    """By node, the agent's CPU until all of its pods were Ready, and until all were gone."""
    nodes = (*PLAIN, *TRACED)
    pids = {node: world.pid(node, "agent") for node in nodes}
    before = {node: cpu_seconds(pid) for node, pid in pids.items()}
    names = {f"cost-{number}-{node}-{one}": node for one in range(pods) for node in nodes}
    for name, node in names.items():
        await world.create(_pod(name, node))
    for name in names:
        await world.until(name, is_ready, "Ready")
    ready = {node: cpu_seconds(pid) for node, pid in pids.items()}
    for name in names:
        await world.delete(name)
    for name in names:
        await world.gone(name)
    over = {node: cpu_seconds(pid) for node, pid in pids.items()}
    return {node: (ready[node] - before[node], over[node] - before[node]) for node in nodes}


def _pod(name: str, node: str) -> dict[str, object]:
    hook = {"postStart": {"exec": {"command": ["true"]}}}
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 5}
    mount = [{"name": "one", "mountPath": "/one"}, {"name": "two", "mountPath": "/two"}]
    main = sleeper(lifecycle=hook, readinessProbe=probe, volumeMounts=mount)
    volumes = [{"name": "one", "emptyDir": {}}, {"name": "two", "emptyDir": {}}]
    return manifest(name, main, volumes=volumes, nodeName=node, terminationGracePeriodSeconds=0)


def _collect(ready: object, taken: object) -> None:
    """A process of its own takes the spans, and counts them."""

    async def run() -> None:
        async with collector(f"10.89.94.1:{PORT}") as there:
            ready.set()  # type: ignore[attr-defined]
            while True:
                await asyncio.sleep(0.5)
                taken.value = sum(there.requests)  # type: ignore[attr-defined]
                there.spans.clear()
                there.resources.clear()

    asyncio.run(run())


async def measured(world: World, rounds: int, pods: int) -> list[dict[str, tuple[float, float]]]:
    await round_of(world, 0, pods)  # the first one warms up
    return [await round_of(world, number, pods) for number in range(1, rounds + 1)]


def report(found: Sequence[dict[str, tuple[float, float]]], pods: int, spans: int) -> None:
    for phase, words in enumerate(("from creation to Ready", "over whole lives")):
        sums = {node: sum(one[node][phase] for one in found) for node in (*PLAIN, *TRACED)}
        plain, traced = (sum(sums[node] for node in nodes) for nodes in (PLAIN, TRACED))
        ratios = [
            sum(one[node][phase] for node in TRACED) / sum(one[node][phase] for node in PLAIN) - 1 for one in found
        ]
        spread = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
        print(
            f"{words}: {traced:.2f} s against {plain:.2f} s ({traced / plain - 1:+.1%}); by rounds, median "
            f"{statistics.median(ratios):+.1%}, standard error {spread:.1%}; by nodes "
            + ", ".join(f"{node} {seconds:.2f} s" for node, seconds in sums.items())
        )
    print(f"{len(found)} rounds of {pods} pods on each node; {spans} spans taken; load {os.getloadavg()[1]:.1f}")


async def main(rounds: int, pods: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(FILE)
        with lent_or_raised("NODEWRIGHT_BENCH_TRACED", NAME, "--config", str(file), "--no-demo", timeout=600) as one:
            spawn = get_context("spawn")
            ready, taken = spawn.Event(), spawn.Value("q", 0)
            process = spawn.Process(target=_collect, args=(ready, taken))
            process.start()
            await asyncio.to_thread(ready.wait, 60)
            api = KubeClient(load_kubeconfig(one.admin_kubeconfig), user_agent="nodewright-bench")
            try:
                report(await measured(World(one, api, "default", []), rounds, pods), pods, taken.value)
            finally:
                await api.close()
                process.terminate()
                process.join(10)


if __name__ == "__main__":
    asyncio.run(main(*(int(one) for one in (*sys.argv[1:], "6", "15")[:2])))
