"""Addresses of Services of type LoadBalancer in real clusters, in both kernel modes of the proxy.

NODEWRIGHT_TEST_BALANCER=name uses an existing cluster, raised with --load-balancer and three nodes, and leaves it
running. NODEWRIGHT_TEST_BALANCER_TRIES=20: how often a node is cut off.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator

import pytest

from controlplane.cluster.model import Cluster
from loadbalancer.app import EXCLUDED
from tests.builders.pods import manifest, web
from tests.cluster.balanced_addresses import announcer, asks, balanced, forget, kill_node, plug, well_again
from tests.cluster.command_line import cli, lent_or_raised
from tests.cluster.world import World, holds

# Alone: how fast an address is answered again is measured and has a bound.
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]

_TRIES = int(os.environ.get("NODEWRIGHT_TEST_BALANCER_TRIES", "3"))
_NODES = ("node1", "node2", "node3")


@pytest.fixture(scope="module", params=["iptables", "nftables"])
def shared_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with three nodes; with a lent one the mode is whatever it has."""
    words = ("--no-uplink", "--no-demo", "--load-balancer", "--nodes", "3", "--proxy-mode", request.param)
    if os.environ.get("NODEWRIGHT_TEST_BALANCER") and request.param != "iptables":
        pytest.skip("a lent cluster has one mode")
    with lent_or_raised("NODEWRIGHT_TEST_BALANCER", "tlb", *words, timeout=1800) as cluster:
        yield cluster


async def test_the_address_answers_to_this_machine_to_every_node_and_to_pods(world: World) -> None:
    await asyncio.gather(
        *(world.run(manifest(f"web{n}", web(), labels={"app": "web"}, nodeName=f"node{n}")) for n in (1, 2))
    )
    address = await balanced(world, "web")
    began = time.monotonic()
    node = await announcer(world, address)

    async def answered() -> bool:
        return asks(world.cluster, address).startswith("web")

    await holds(answered, "the machine is answered", 10)
    world.stats.append(("address announced and answered after", f"{time.monotonic() - began:.2f} s"))
    for one in _NODES:
        assert asks(world.cluster, address, node=one).startswith("web"), one
    done = await world.kubectl("exec", "web1", "--", "curl", "-s", "-m", "3", f"http://{address}:8080/hostname")
    assert done.text.startswith("web")
    heard = {asks(world.cluster, address) for _ in range(40)}
    assert heard == {"web1", "web2"}
    said = cli("service", f"{world.namespace}/web", "--name", world.cluster.name)
    assert f"{address} is announced by {node}" in said.stdout
    said = cli("why", "svc/web", "-n", world.namespace, "--name", world.cluster.name, check=False)
    assert f"{address} is announced by {node}" in said.stdout


async def test_policy_local_keeps_the_client_and_follows_its_pods(world: World) -> None:
    await world.run(manifest("first", web(), labels={"app": "local"}, nodeName="node2"))
    address = await balanced(world, "local", externalTrafficPolicy="Local")
    assert await announcer(world, address) == "node2"

    async def seen() -> str:
        return asks(world.cluster, address, path="clientip").partition(":")[0]

    assert await holds(seen, "the machine is answered", 10) == world.cluster.host_address
    for one in _NODES:
        assert asks(world.cluster, address, node=one) == "first", f"{one} is answered, too"
    await world.run(manifest("second", web(), labels={"app": "local"}, nodeName="node3"))
    assert await announcer(world, address) == "node2", "it stays while it can"
    await world.delete("first")

    async def moved() -> bool:
        return await announcer(world, address) == "node3" and asks(world.cluster, address) == "second"

    await holds(moved, "the address follows the pods", 30)


async def test_source_ranges_hold_at_the_address(world: World) -> None:
    await world.run(manifest("open", web(), nodeName="node1"))
    address = await balanced(world, "open", loadBalancerSourceRanges=["192.0.2.0/24"])
    await announcer(world, address)
    other = await balanced(world, "wide", "open", loadBalancerSourceRanges=[f"{world.cluster.host_address}/32"])

    async def answered() -> bool:
        return asks(world.cluster, other) == "open"

    await holds(answered, "the one that may", 10)
    assert asks(world.cluster, address) == ""


async def test_a_requested_address_outside_of_the_pool_is_told_with_what_to_do(world: World) -> None:
    full = {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerIP": "192.0.2.1"}
    await world.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "far"}, "spec": full})
    await world.event("far", "AddressOutsidePool", "192.0.2.1 is requested and is not in the pool")
    said = cli("why", "svc/far", "-n", world.namespace, "--name", world.cluster.name, check=False)
    assert said.returncode == 1 and "is not in the pool" in said.stdout
    shown = await world.kubectl("describe", "service", "far")
    assert "AddressOutsidePool" in shown.text


async def test_killed_daemons_lose_no_address(world: World) -> None:
    await world.run(manifest("kept", web(), nodeName="node1"))
    address = await balanced(world, "kept")
    node = await announcer(world, address)

    async def answered() -> bool:
        return asks(world.cluster, address) == "kept"

    await holds(answered, "the machine is answered", 10)
    for _ in range(5):
        await world.kill(node, "loadbalancer")
        assert asks(world.cluster, address) == "kept", "this machine knows the way"
        forget(address)
        assert asks(world.cluster, address, seconds=5) == "kept", "and finds it again"
    for one in _NODES:
        await world.kill(one, "loadbalancer")
    await holds(answered, "all were killed", 10)


async def test_another_node_answers_within_three_seconds_of_a_node_s_death(world: World) -> None:
    """node1 has the control plane and the pod, so that only the way to the address is measured."""
    await world.run(manifest("far", web(), nodeName="node1"))
    await world.kubectl("label", "node", "node1", f"{EXCLUDED}=")
    try:
        address = await balanced(world, "far")

        async def answered() -> bool:
            return asks(world.cluster, address) == "far"

        await holds(answered, "the machine is answered", 15)
        took = []
        for _ in range(_TRIES):
            victim = await announcer(world, address)
            assert victim != "node1"
            took.append(await _cut_off(world, victim, address))
            await well_again(world, _NODES)
        took.sort()
        world.stats.append((f"node cut off {_TRIES} times: answered again after", " ".join(f"{s:.2f}" for s in took)))
        assert took[len(took) // 2] < 3, "the median; a busy machine takes longer now and then"
        victim = await announcer(world, address)
        began = time.monotonic()
        kill_node(world.cluster, victim)  # its network namespace outlives it, so that old neighbours still get through

        async def taken_over() -> bool:
            return await announcer(world, address) != victim

        await holds(taken_over, "another node announces the address", 10)
        forget(address)
        assert asks(world.cluster, address, seconds=5) == "far"
        world.stats.append(("node's process 1 killed: another one answers after", f"{time.monotonic() - began:.2f} s"))
        cli("up", "--name", world.cluster.name, "--plain", timeout=300)
        assert await answered()
    finally:
        await world.kubectl("label", "node", "node1", f"{EXCLUDED}-")


async def _cut_off(world: World, victim: str, address: str) -> float:
    """Take the node's cable out, kill its daemon, and put the cable in again; seconds until the address answered."""
    daemon = world.pid(victim, "loadbalancer")
    began = time.monotonic()
    plug(world.cluster, victim, into=False)
    os.kill(daemon, signal.SIGKILL)
    try:
        while asks(world.cluster, address, seconds=0.3) != "far":
            assert time.monotonic() - began < 15, f"{address} does not answer"
        return time.monotonic() - began
    finally:
        plug(world.cluster, victim, into=True)
