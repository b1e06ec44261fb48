"""What tracing costs the agent: `python -m tests.bench.tracing_cost [BLOCKS PODS [STANDING]]`.

Four agents trace half of their pods (samplingRatePerMillion 500,000: a pod's UID decides), so that the same process
starts pods that are traced and pods that are not. In each round two nodes get as many pods of the one kind and two of
the other; a block is six rounds, every choice of two nodes once, in random order. Comparing nodes, or clusters, does
not do: the same nodes differ by some percent even where none traces, and not by the same from one cluster to the next.

A round lasts 20 seconds, and twelve after its last pod is gone: spans wait ten, and so leave in their own round.
With STANDING, as many pods with a probe every five seconds stay on each node all the time: a node that mostly runs
pods, and starts some.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from agent.pods.plan.spans import START
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from nodelib.traces import sampling
from tests.builders.pods import manifest, sleeper
from tests.cluster.command_line import raised
from tests.cluster.world import World, cpu_seconds, is_ready
from tests.fakes.collector import collector

NAME, PORT = "tcost", 14318
RATE = sampling.ALL // 2
ROUND, LEAVE = 20.0, 12.0  # seconds
NODES = ("node2", "node3", "node4", "node5")
PHASES = ("from creation to Ready", "over whole lives")
_KUBELET = f'kubelet: {{tracing: {{endpoint: "10.89.94.1:{PORT}", samplingRatePerMillion: {RATE}}}}}'
_CLUSTER = (
    f"apiVersion: nodewright.io/v1alpha1\nkind: Cluster\nname: {NAME}\n"
    + "".join(f"{'nodes:' * (not one)}\n- {{name: {node}, {_KUBELET}}}" for one, node in enumerate(("node1", *NODES)))
    + "\nnetworking: {nodeSubnet: 10.89.94.0/24, uplink: false}\n"
)


@dataclass(frozen=True)
class Round:
    traced: frozenset[str]  # nodes
    cpu: Mapping[str, tuple[float, float]]  # by node, seconds in each of PHASES


def _pod(name: str, **more: Any) -> dict[str, Any]:
    hook = {"postStart": {"exec": {"command": ["true"]}}}
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 5}
    mount = [{"name": "one", "mountPath": "/one"}, {"name": "two", "mountPath": "/two"}]
    main = sleeper(lifecycle=hook, readinessProbe=probe, volumeMounts=mount)
    volumes = [{"name": "one", "emptyDir": {}}, {"name": "two", "emptyDir": {}}]
    return manifest(name, main, volumes=volumes, terminationGracePeriodSeconds=0, **more)


async def _unbound(world: World, prefix: str, pods: int) -> dict[bool, list[str]]:
    """As many pods that will be traced, and that will not, as two nodes take. No node has them yet."""
    found: dict[bool, list[str]] = {True: [], False: []}
    for number in itertools.count():
        if all(len(names) == 2 * pods for names in found.values()):
            return found
        made = await world.create(_pod(f"{prefix}-{number}", schedulerName="nobody"))
        name, uid = made["metadata"]["name"], made["metadata"]["uid"]
        kind = found[sampling.is_sampled(sampling.trace_id(START, uid), RATE)]
        if len(kind) < 2 * pods:
            kind.append(name)
        else:
            await world.delete(name)
    raise AssertionError  # not reached: the count has no end


async def _bind(world: World, name: str, node: str) -> None:
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    await world.api.post(f"{world.path('pods', name)}/binding", binding)


async def _round(world: World, number: int, traced: Collection[str], pods: int) -> Round:
    waiting = await _unbound(world, f"cost-{number}", pods)
    end = time.monotonic() + ROUND
    pids = {node: world.pid(node, "agent") for node in NODES}
    before = {node: cpu_seconds(pid) for node, pid in pids.items()}
    names = []
    for one in range(pods):
        for node in NODES[(number + one) % 4 :] + NODES[: (number + one) % 4]:  # each is first as often
            names.append(waiting[node in traced].pop())
            await _bind(world, names[-1], node)
    for name in names:
        await world.until(name, is_ready, "Ready")
    ready = {node: cpu_seconds(pid) for node, pid in pids.items()}
    for name in names:
        await world.delete(name)
    for name in names:
        await world.gone(name)
    await asyncio.sleep(max(end - time.monotonic(), LEAVE))
    over = {node: cpu_seconds(pid) for node, pid in pids.items()}
    return Round(frozenset(traced), {node: (ready[node] - before[node], over[node] - before[node]) for node in NODES})


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
        await world.create(_pod(name, nodeName=node))
    for name in names:
        await world.until(name, is_ready, "Ready")


async def measured(blocks: int, pods: int, standing: int, taken: object) -> list[Round]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.yaml"
        file.write_text(_CLUSTER)
        with raised(NAME, "--config", str(file), "--no-demo", timeout=600) as cluster:
            api = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-bench")
            process = get_context("spawn").Process(target=_collect, args=(taken,))
            process.start()
            try:
                world = World(cluster, api, "default", [])
                await _stand(world, standing)
                choices = list(itertools.combinations(NODES, 2))
                plan = [one for _ in range(blocks) for one in random.sample(choices, len(choices))]
                await _round(world, 0, NODES[:2], pods)  # warms up
                found = []
                for number, traced in enumerate(plan, 1):
                    found.append(await _round(world, number, traced, pods))
                    if number % len(choices) == 0:
                        report(found)
                return found
            finally:
                process.terminate()
                process.join(10)
                await api.close()


def cost(rounds: Sequence[Round], phase: int) -> tuple[float, float]:
    """By how much the traced pods' CPU is more, 0.03 for 3 %, and the standard error. Each node's own level is left
    out: it is traced in as many rounds as not."""
    logs = [{node: math.log(cpu[phase]) for node, cpu in one.cpu.items()} for one in rounds]
    level = {node: statistics.mean(one[node] for one in logs) for node in NODES}
    more = [
        sum((1 if node in one.traced else -1) * (log[node] - level[node]) for node in NODES) / 2
        for one, log in zip(rounds, logs, strict=True)
    ]
    return math.expm1(statistics.mean(more)), statistics.stdev(more) / len(more) ** 0.5


def report(rounds: Sequence[Round]) -> None:
    for phase, words in enumerate(PHASES):
        more, error = cost(rounds, phase)
        mean = statistics.mean(cpu[phase] for one in rounds for cpu in one.cpu.values())
        print(f"{words}: {more:+.1%} (standard error {error:.1%}); {mean * 1000:.0f} ms a node and round")
    print(f"{len(rounds)} rounds; load {os.getloadavg()[1]:.1f}", flush=True)


async def main(blocks: int, pods: int, standing: int = 0) -> None:
    taken = get_context("spawn").Value("q", 0)
    await measured(blocks, pods, standing, taken)
    print(f"{pods} pods on each node and round, {standing} stay; {taken.value} spans taken")


if __name__ == "__main__":
    asyncio.run(main(*(int(one) for one in sys.argv[1:] or ("3", "16"))))
