"""ClusterNetworkPolicies in a real cluster: the CRD of `up`, packets across nodes, trace, events, and a killed daemon.

NODEWRIGHT_TEST_POLICY=name uses an existing cluster, raised with --network-policy, and leaves it running.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import pytest

from nodelib.json_values import Json
from nodelib.kube.client import ApiError
from policy.watches.cluster_policies import GROUP, POLICIES, VERSION
from tests.browser import chromium, driven, needs_chromium
from tests.builders.cluster_policies import BASELINE, cluster_policy, domains, egress, ingress, nodes
from tests.builders.pods import container, manifest, sleeper, web
from tests.cluster.command_line import cli
from tests.cluster.test_network_policy import address, answers, shared_cluster
from tests.cluster.test_view import DETAIL, TEXT, viewing
from tests.cluster.world import World, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

__all__ = ["shared_cluster"]


@contextlib.asynccontextmanager
async def applied(world: World, obj: Json) -> AsyncIterator[str]:
    """The policy, for the pods of this test's namespace, until the block ends. Gives its name."""
    name = f"{world.namespace}-{obj['metadata']['name']}"
    ours = {"namespaces": {"matchLabels": {"kubernetes.io/metadata.name": world.namespace}}}
    spec = {**obj["spec"], "subject": ours}
    kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "ClusterNetworkPolicy"}
    await world.api.post(POLICIES, {**kind, "metadata": {"name": name}, "spec": spec})
    try:
        yield name
    finally:
        with contextlib.suppress(ApiError):
            await world.api.delete(f"{POLICIES}/{name}")


async def test_tiers_decide_on_every_node_and_trace_says_which_rule(world: World) -> None:
    await asyncio.gather(
        world.run(manifest("client", sleeper(), nodeName="node1")),
        world.run(manifest("near", web(), nodeName="node1")),
        world.run(manifest("far", web(), nodeName="node2")),
    )
    hosts = {name: await address(world, name) for name in ("near", "far")}
    async with applied(world, cluster_policy("closed", ingress=[ingress("Deny", name="nobody")])) as name:
        for host in hosts.values():

            async def shut(host: str = host) -> bool:
                return not await answers(world, "client", host)

            await holds(shut, "the policy is in force")
        way = (f"{world.namespace}/client", f"{world.namespace}/far:8080")
        said = cli("trace", *way, "--name", world.cluster.name, check=False)
        assert said.returncode == 1 and "DROPPED" in said.stdout
        assert f"ClusterNetworkPolicy {name} denies it (Admin tier, ingress[0] nobody)" in said.stdout
        async with applied(world, cluster_policy("open", priority=1, ingress=[ingress("Accept")])):

            async def open_now() -> bool:
                return await answers(world, "client", hosts["far"])

            await holds(open_now, "a policy of a lower number accepts")
    for host in hosts.values():

        async def opened(host: str = host) -> bool:
            return await answers(world, "client", host)

        await holds(opened, "the policy is gone")


@needs_chromium
async def test_the_page_shows_both_tiers_and_which_rule_drops(world: World) -> None:
    caller = container("client", script="while true; do wget -qO- -T 1 $HOST:8080/hostname; sleep 1; done")
    await world.run(manifest("far", web(), nodeName="node2"))
    host = await address(world, "far")
    passing = cluster_policy("pass", ingress=[ingress("Pass", name="on")])
    closed = cluster_policy("base", BASELINE, ingress=[ingress("Deny", name="all others")])
    async with applied(world, passing) as admin, applied(world, closed) as base:
        await world.run(manifest("client", {**caller, "env": [{"name": "HOST", "value": host}]}, nodeName="node1"))
        with chromium() as window:
            async with viewing(world.cluster.name) as url, driven(window) as browser:
                await browser.open(url)
                await browser.until(f"{TEXT}.includes('(tier Baseline: ingress)')", f"pod/{world.namespace}/far")
                await browser.until(f"{TEXT}.includes('2 pods')", f"clusternetworkpolicy//{admin}")
                await browser.open(f"{url}#/pod/{world.namespace}/client")
                refused = "(document.querySelector('[data-part=refused]')?.innerText ?? '')"
                await browser.until(f"{refused}.includes('{base} (Baseline tier, ingress[0] all others)')", seconds=40)
                await browser.open(f"{url}#/packet?from={world.namespace}/client&to={world.namespace}/far:8080")
                await browser.until("document.querySelector('#verdict').innerText === 'DROPPED'", seconds=60)
                walk = await browser.value("document.querySelector('#walk').innerText")
                assert f"dropped: ClusterNetworkPolicy {base} denies it (Baseline tier, ingress[0] all others)" in walk
                assert f"ClusterNetworkPolicy {admin} passes it on to the NetworkPolicies" in walk
                for name, words in ((admin, "Admin ingress[0] of"), (base, "drop")):
                    await browser.open(f"{url}#/clusternetworkpolicy//{name}")
                    await browser.until(f"{DETAIL}.includes('Enforced on node2') && {DETAIL}.includes('{words}')")
                assert await browser.log() == []


async def test_a_pod_that_starts_while_its_daemon_is_killed_is_protected_when_it_runs(world: World) -> None:
    await world.run(manifest("client", sleeper(), nodeName="node1"))
    async with applied(world, cluster_policy("closed", ingress=[ingress("Deny")])):
        for number in range(5):
            os.kill(await world.pid_once_running("node1", "policy"), signal.SIGKILL)
            await world.run(manifest(f"pod{number}", web(), nodeName="node1"))
            assert not await answers(world, "client", await address(world, f"pod{number}"))


async def test_a_rule_that_is_not_understood_is_an_event_of_the_policy(world: World) -> None:
    rules = [egress("Accept", nodes()), egress("Pass", domains("example.com"))]
    async with applied(world, cluster_policy("names", egress=rules)) as name:

        async def described() -> bool:
            done = await world.kubectl("describe", "cnp", name, check=False)
            return "PartNotUnderstood" in done.text and "domainNames go with the action Accept only" in done.text

        await holds(described, "kubectl describe shows the event")
