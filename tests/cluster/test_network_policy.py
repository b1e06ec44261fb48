"""Network policies in a real cluster: daemons that are killed, and pods that never run open.

NODEWRIGHT_TEST_POLICY=name uses an existing cluster, raised with --network-policy, and leaves it running.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator

import pytest

from controlplane.cluster.model import Cluster
from tests.browser import chromium, driven, needs_chromium
from tests.builders.pods import manifest, sleeper, web
from tests.cluster.command_line import cli, lent_or_raised
from tests.cluster.test_view import viewing
from tests.cluster.world import Object, World, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_ASK = "wget -q -T 2 -O- http://{}:8080/hostname"


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """A cluster of their own, with policies enforced."""
    words = ("--no-uplink", "--no-demo", "--network-policy")
    with lent_or_raised("NODEWRIGHT_TEST_POLICY", "tpol", *words, timeout=1800) as cluster:
        yield cluster


async def isolate(world: World, *allowed: Object) -> None:
    """Pods with the label closed=yes accept what comes from these peers only, and send nothing."""
    spec = {
        "podSelector": {"matchLabels": {"closed": "yes"}},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": list(allowed)}] if allowed else [],
    }
    path = f"/apis/networking.k8s.io/v1/namespaces/{world.namespace}/networkpolicies"
    await world.api.post(path, {"metadata": {"name": "closed"}, "spec": spec})


def closed(name: str, node: str) -> Object:
    obj = manifest(name, web(), nodeName=node)
    obj["metadata"]["labels"] = {"closed": "yes"}
    return obj


async def address(world: World, name: str) -> str:
    return str((await world.ready(name))["status"]["podIP"])


async def answers(world: World, client: str, host: str) -> bool:
    done = await world.kubectl("exec", client, "--", *_ASK.format(host).split(), check=False)
    return done.returncode == 0


async def test_pods_of_every_node_are_isolated_and_their_probes_pass(world: World) -> None:
    await isolate(world)
    await asyncio.gather(
        world.run(manifest("client", sleeper(), nodeName="node1")),
        world.run(closed("near", "node1")),
        world.run(closed("far", "node2")),
    )
    for name in ("near", "far"):
        assert not await answers(world, "client", await address(world, name))
    way = (f"{world.namespace}/client", f"{world.namespace}/near:8080")
    said = cli("trace", *way, "--name", world.cluster.name, check=False)
    assert said.returncode == 1 and "DROPPED" in said.stdout and f"isolated by {world.namespace}/closed" in said.stdout


async def test_a_pod_that_starts_while_its_daemon_is_killed_is_protected_when_it_runs(world: World) -> None:
    await isolate(world)
    await world.run(manifest("client", sleeper(), nodeName="node1"))
    for number in range(5):
        os.kill(await world.pid_once_running("node1", "policy"), signal.SIGKILL)
        await world.run(closed(f"pod{number}", "node1"))
        assert not await answers(world, "client", await address(world, f"pod{number}"))


async def test_without_the_daemon_rules_stay_and_a_new_pod_waits_with_the_reason(world: World) -> None:
    await isolate(world)
    await asyncio.gather(world.run(manifest("client", sleeper(), nodeName="node1")), world.run(closed("old", "node1")))
    stopped = await world.pid_once_running("node1", "policy")
    os.kill(stopped, signal.SIGSTOP)
    try:
        assert not await answers(world, "client", await address(world, "old"))
        await world.create(closed("new", "node1"))
        await world.event("new", "FailedCreatePodSandBox", "the policy daemon cannot be asked")
    finally:
        os.kill(stopped, signal.SIGCONT)
    await world.ready("new")
    assert not await answers(world, "client", await address(world, "new"))


async def test_a_policy_that_changes_is_in_force_within_seconds(world: World) -> None:
    await isolate(world)
    await asyncio.gather(
        world.run(manifest("client", sleeper(), nodeName="node2")), world.run(closed("server", "node1"))
    )
    host = await address(world, "server")
    assert not await answers(world, "client", host)
    await world.kubectl("label", "pod", "server", "closed-")

    async def open_now() -> bool:
        return await answers(world, "client", host)

    await holds(open_now, "the pod is selected no more, and answers")


async def test_a_refused_packet_has_a_name_everywhere(world: World) -> None:
    """`drops` of both nodes, `why`, the event on the pod, and `policy explain`."""
    await isolate(world)
    asking: Object = {**closed("asking", "node2"), "spec": manifest("asking", sleeper(), nodeName="node2")["spec"]}
    await asyncio.gather(
        world.run(manifest("client", sleeper(), nodeName="node1")), world.run(asking), world.run(closed("far", "node2"))
    )
    assert not await answers(world, "client", await address(world, "far"))
    await world.kubectl("exec", "asking", "--", "nslookup", "kubernetes.default", check=False)
    space, name = world.namespace, world.cluster.name

    async def drop(pod: str, direction: str) -> Object:
        said = await asyncio.to_thread(cli, "drops", f"{space}/{pod}", "--name", name, "-o", "json")
        found = [one for one in json.loads(said.stdout)["drops"] if one["direction"] == direction]
        return found[-1] if found else {}

    async def wanted(pod: str, direction: str) -> Object:
        await holds(lambda: drop(pod, direction), f"a drop of {pod}")
        return await drop(pod, direction)

    refused = await wanted("far", "Ingress")
    ends = refused["from"]["pod"], refused["to"]["pod"]
    assert (refused["node"], *ends) == ("node2", f"{space}/client", f"{space}/far")
    assert (refused["to"]["port"], refused["policies"]) == (8080, [f"{space}/closed"])
    assert refused["wouldAllow"] == f"an ingress rule in {space}/closed for this peer and port 8080/TCP"
    dns = await wanted("asking", "Egress")
    assert dns["to"]["port"] == 53 and dns["to"]["pod"].startswith("kube-system/coredns")
    why = await asyncio.to_thread(cli, "why", f"{space}/asking", "--name", name, check=False)
    assert f"DNS queries of {space}/asking to kube-system/coredns" in why.stdout, why.stdout
    await world.event("client", "NetworkPolicyDropped", f"NetworkPolicy {space}/closed isolates that pod")
    await world.event("asking", "NetworkPolicyDropped", "port 53/UDP are refused")
    explained = await asyncio.to_thread(cli, "policy", "explain", f"{space}/far", "--name", name)
    assert f"ingress: isolated by {space}/closed. No rule allows anything: nobody may reach it." in explained.stdout


@needs_chromium
async def test_the_live_page_shows_a_policy_s_rules_and_what_they_drop(world: World) -> None:
    await world.create(closed("shut", "node1"))
    await world.create(manifest("knocks", sleeper(), nodeName="node2"))
    await isolate(world)
    there = await address(world, "shut")
    await world.ready("knocks")
    with chromium() as window:
        async with viewing(world.cluster.name) as url, driven(window) as browser:
            await browser.open(f"{url}#/networkpolicy/{world.namespace}/closed")
            await browser.until("document.querySelector('#detail').innerText.includes('Enforced on node1')", seconds=30)
            drops = "[...document.querySelectorAll('.rules tr')].filter((one) => one.innerText.includes('isolated by'))"
            await browser.until(f"({drops}).length > 0")
            before = await browser.value(f"({drops}).reduce((sum, one) => sum + +one.cells[1].innerText, 0)")
            await browser.open(f"{url}#/packet")
            await browser.until("document.querySelector('#refused').innerText.includes('Dropped packets')")
            assert not await answers(world, "knocks", there)
            dropped = "document.querySelector('#refused').innerText"
            # By the daemon's next answer, which comes with the drop.
            await browser.until(f"{dropped}.includes('{world.namespace}/knocks')", seconds=5)
            await browser.open(f"{url}#/networkpolicy/{world.namespace}/closed")
            more = f"({drops}).reduce((sum, one) => sum + +one.cells[1].innerText, 0) > {before}"
            await browser.until(more, seconds=15)
