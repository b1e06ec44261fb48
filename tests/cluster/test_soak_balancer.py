"""The node that announces an address is killed as by a power cut, again and again, while this machine asks.

By hand: NODEWRIGHT_SOAK=20 ./nodewright test tests/cluster/test_soak_balancer.py -m soak
(the number of kills; some 20 s each, because the node is started again. NODEWRIGHT_TEST_BALANCER=name uses a cluster
with three nodes that is there, and leaves it running.)
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator

import pytest

from controlplane.cluster.model import Cluster
from loadbalancer.app import EXCLUDED
from tests.builders.pods import manifest, web
from tests.cluster.balanced_addresses import announcer, asks, balanced, kill_node, plug, well_again
from tests.cluster.command_line import cli, lent_or_raised
from tests.cluster.world import World, holds

_KILLS = int(os.environ.get("NODEWRIGHT_SOAK", "0"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(not _KILLS, reason="runs by hand: NODEWRIGHT_SOAK=20"),
]
_NODES = ("node1", "node2", "node3")
_TARGET = 3.0  # seconds
_PATIENCE = 0.2  # seconds for one request: an answer is seen that much late at most
_WARM = 1.0  # seconds of answers before each kill


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    words = ("--no-uplink", "--no-demo", "--load-balancer", "--nodes", "3")
    with lent_or_raised("NODEWRIGHT_TEST_BALANCER", "tlbs", *words, timeout=1800) as cluster:
        yield cluster


async def test_a_killed_node_s_address_answers_again_from_another(world: World) -> None:
    """node1 has the control plane and the pod, and announces nothing: only the way to the address is measured."""
    await world.run(manifest("far", web(), nodeName="node1"))
    await world.kubectl("label", "node", "node1", f"{EXCLUDED}=")
    took: list[float] = []
    try:
        address = await balanced(world, "far")

        async def answered() -> bool:
            return asks(world.cluster, address) == "far"

        await holds(answered, "the machine is answered", 15)
        for number in range(_KILLS):
            victim = await announcer(world, address)
            assert victim != "node1"
            took.append(await _without_power(world, victim, address))
            print(f"kill {number + 1}: {victim}, answered again after {took[-1]:.2f} s", flush=True)
            # Of containers that die so often one is not started for minutes, and `up` waits for CoreDNS.
            where = ("-n", "kube-system", "-l", "k8s-app=kube-dns", "--field-selector", f"spec.nodeName={victim}")
            await world.kubectl("delete", "pods", *where, "--force", "--grace-period=0")
            await asyncio.to_thread(cli, "up", "--name", world.cluster.name, "--plain", timeout=300)
            await well_again(world, _NODES)
    finally:
        await world.kubectl("label", "node", "node1", f"{EXCLUDED}-")
        world.stats.append((f"announcing node killed {len(took)} times: answered again after", _shown(took)))
    assert _part(took, 0.9) < _TARGET, "a busy machine takes longer now and then"


async def _without_power(world: World, victim: str, address: str) -> float:
    """Take a node's cable out and kill all of its processes; seconds from then until the address answered."""
    quiet = time.monotonic() + _WARM
    while time.monotonic() < quiet:
        assert asks(world.cluster, address) == "far"
    began = time.monotonic()
    plug(world.cluster, victim, into=False)
    kill_node(world.cluster, victim)
    try:
        while asks(world.cluster, address, seconds=_PATIENCE) != "far":
            assert time.monotonic() - began < 30, f"{address} does not answer"
        return time.monotonic() - began
    finally:
        plug(world.cluster, victim, into=True)


def _part(values: list[float], part: float) -> float:
    return sorted(values)[int((len(values) - 1) * part)]


def _shown(took: list[float]) -> str:
    if not took:
        return "-"
    figures = {"median": 0.5, "p90": 0.9, "max": 1.0}
    words = [f"{name} {_part(took, part):.2f} s" for name, part in figures.items()]
    return f"{', '.join(words)} (in order: {' '.join(f'{one:.2f}' for one in took)})"
