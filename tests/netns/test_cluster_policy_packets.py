"""Real packets under real ClusterNetworkPolicies: each action in both tiers, beside NetworkPolicies, both families.

The world is that of test_policy_packets.py: pods .11, .12 and .13 on one bridge, a client outside, both families.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from cli.explain.facts import Facts
from cli.explain.reasons import reason
from nodelib.firewall.objects import Family
from nodelib.firewall.trace import Packet
from nodelib.json_values import Json
from tests.builders.cluster_policies import (
    BASELINE,
    cluster_policy,
    egress,
    ingress,
    named,
    networks,
    node,
    nodes,
    pods,
    port,
    spaces,
)
from tests.builders.policies import apps, policy
from tests.netns.cni_world import wait_for
from tests.netns.policy_world import PolicyWorld, fill, fill_cluster
from tests.netns.test_policy_packets import ONE, PODS, SERVICE_OF_TWO, SPACES, V6, is_answered
from tests.netns.test_proxy_packets import CLIENT, CONTEXT, FAR, NODE, POD1, POD2, SERVICE
from tests.unit.proxy.build import desired

pytestmark = pytest.mark.netns

NODES = [node("node1", NODE, "fd00:244::1", here="yes"), node("node2", CLIENT, V6[CLIENT], here="no")]
TWO = pods("two")
DENY = cluster_policy("deny", priority=100, subject=pods("one"), ingress=[ingress("Deny")])
BASE = cluster_policy("base", BASELINE, 100, subject=pods("one"), ingress=[ingress("Deny")])
IN_ONLY = policy(select=ONE, ingress=[{"from": [apps("two")]}])


def first(action: str) -> Json:
    """A policy before DENY, for what pod two sends to pod one."""
    return cluster_policy("first", priority=1, subject=pods("one"), ingress=[ingress(action, TWO)])


def base(action: str) -> Json:
    return cluster_policy("before", BASELINE, 1, subject=pods("one"), ingress=[ingress(action, TWO)])


def out(*rules: Json) -> Json:
    return cluster_policy("out", subject=pods("one"), egress=list(rules))


@dataclass(frozen=True)
class Case:
    """`asks`: (who, to) -> whether it is answered, on port 8080 and in both families."""

    name: str
    cluster: tuple[Json, ...]
    asks: dict[tuple[str, str], bool]
    policies: tuple[Json, ...] = ()


CASES = [
    Case(
        "admin denies pods, and nobody else",
        (DENY,),
        {(POD2, POD1): False, (FAR, POD1): False, ("client", POD1): True, ("node", POD1): True, (POD1, POD2): True},
    ),
    Case("admin denies what a NetworkPolicy allows", (DENY,), {(POD2, POD1): False}, (IN_ONLY,)),
    Case(
        "admin accepts what a NetworkPolicy denies",
        (first("Accept"),),
        {(POD2, POD1): True, (FAR, POD1): False},
        (policy(select=ONE),),
    ),
    Case("admin accepts before admin denies", (first("Accept"), DENY), {(POD2, POD1): True, (FAR, POD1): False}),
    Case("admin passes, nobody else decides", (first("Pass"), DENY), {(POD2, POD1): True, (FAR, POD1): False}),
    Case("admin passes to a NetworkPolicy that denies", (first("Pass"),), {(POD2, POD1): False}, (policy(select=ONE),)),
    Case(
        "admin passes to a NetworkPolicy that allows, before the baseline",
        (first("Pass"), DENY, BASE),
        {(POD2, POD1): True, (FAR, POD1): False},
        (IN_ONLY,),
    ),
    Case("admin passes to the baseline", (first("Pass"), BASE), {(POD2, POD1): False, (FAR, POD1): False}),
    Case("the baseline denies", (BASE,), {(POD2, POD1): False, ("client", POD1): True}),
    Case("the baseline accepts first", (base("Accept"), BASE), {(POD2, POD1): True, (FAR, POD1): False}),
    Case("the baseline passes first", (base("Pass"), BASE), {(POD2, POD1): True, (FAR, POD1): False}),
    Case(
        "the baseline is not asked about a pod that a NetworkPolicy isolates",
        (BASE,),
        {(POD2, POD1): True, (FAR, POD1): False},
        (IN_ONLY,),
    ),
    Case(
        "rules in their order, with a Pass between others",
        (
            cluster_policy(
                subject=pods("one"),
                ingress=[ingress("Accept", spaces(team="blue")), ingress("Pass", TWO), ingress("Deny")],
            ),
        ),
        {(POD2, POD1): False, (FAR, POD1): True},
        (policy(select=ONE),),
    ),
    Case(
        "ports and named ports",
        (
            cluster_policy(
                subject=pods("one"),
                ingress=[
                    ingress("Deny", TWO, protocols=[port(8080, 8081, "udp"), port(8081)]),
                    ingress("Accept", TWO, protocols=[port(8079, 8080)]),
                    ingress("Deny", protocols=[named("web")]),
                ],
            ),
        ),
        {(POD2, POD1): True, (FAR, POD1): False},
    ),
    Case("egress to pods", (out(egress("Deny", spaces(team="blue"))),), {(POD1, FAR): False, (POD1, POD2): True}),
    Case(
        "egress to networks that overlap",
        (
            out(
                egress("Accept", networks("10.244.0.12/32", "10.244.0.0/31", "fd00:244::12/128")),
                egress("Deny", networks("10.244.0.0/24", "10.244.0.8/29", "fd00:244::/64", "fd00:244::10/124")),
            ),
        ),
        {(POD1, POD2): True, (POD1, FAR): False, (POD1, CLIENT): True, (POD2, FAR): True},
    ),
    Case(
        "egress to nodes, the own one and another",
        (out(egress("Deny", nodes())),),
        {(POD1, NODE): False, (POD1, CLIENT): False, (POD1, POD2): True, (POD2, NODE): True, ("node", POD1): True},
    ),
    Case(
        "egress to some nodes",
        (out(egress("Accept", nodes(here="yes")), egress("Deny", networks("0.0.0.0/0", "::/0"))),),
        {(POD1, NODE): True, (POD1, CLIENT): False, (POD1, POD2): False},
    ),
    Case(
        "egress to the own node under a NetworkPolicy, which never forbids it, nor lets the baseline do so",
        (cluster_policy("out", BASELINE, subject=pods("one"), egress=[egress("Deny", nodes())]),),
        {(POD1, NODE): True, (POD1, POD2): False},
        (policy(select=ONE, policyTypes=["Egress"]),),
    ),
    Case(
        "one direction accepted, the other denied at the other end",
        (cluster_policy("in", subject=pods("two"), ingress=[ingress("Deny")]), out(egress("Accept"))),
        {(POD1, POD2): False, (POD1, FAR): True},
    ),
]


@pytest.fixture(scope="module")
def world() -> Iterator[PolicyWorld]:
    one = PolicyWorld()
    for who in ("client", POD2, FAR):
        wait_for(f"IPv6 between {who} and {POD1}", partial(is_answered, one, who, V6[POD1]))
    yield one
    one.close()


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("case", CASES, ids=[one.name for one in CASES])
def test_who_may_reach_whom(world: PolicyWorld, case: Case, family: Family) -> None:
    world.apply(PODS, case.policies, SPACES, [*NODES, *case.cluster])
    found = {
        (who, to): is_answered(world, who, to if family is Family.IPV4 else V6.get(to, "fd00:244::1"))
        for who, to in case.asks
    }
    assert found == case.asks


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_services_lead_to_pods_under_cluster_policies(world: PolicyWorld, mode: str) -> None:
    """What is judged is the pod that answers; a pod that reaches itself through a Service is judged, too."""
    backend = world.backend(mode, CONTEXT)
    try:
        asyncio.run(backend.sync(desired(*SERVICE_OF_TWO, node="node1"), None))
        world.apply(PODS, [], SPACES, [DENY])
        assert world.ask(FAR, SERVICE, 80, 12, timeout=0.5) == f"TimeoutError, pod12 {FAR}"
        assert world.ask(POD1, SERVICE, 80, 12, timeout=0.5) == f"TimeoutError, pod12 {POD1}"
        world.apply(PODS, [policy(select=ONE)], SPACES, [first("Pass")])
        assert world.ask(POD1, SERVICE, 80, 12, timeout=0.5) == f"pod11 {NODE}, pod12 {POD1}"
    finally:
        asyncio.run(backend.cleanup())
        world.apply(PODS, [], SPACES)


def test_a_flow_that_is_denied_stops_in_both_directions(world: PolicyWorld) -> None:
    world.apply(PODS, [], SPACES)
    stopped, kept = world.stream(POD2, POD1, 8080), world.stream(FAR, POD1, 8080)
    for one in (stopped, kept):
        assert one.stdout is not None and one.stdout.readline()

    world.apply(PODS, [], SPACES, [cluster_policy(subject=pods("one"), ingress=[ingress("Deny", TWO)])])

    assert stopped.stdout is not None and stopped.stdout.read().startswith(b"broken after"), "it ends by itself"
    assert kept.stdin is not None and kept.stdout is not None and kept.poll() is None
    kept.stdin.close()
    assert kept.stdout.read().splitlines()[-1].startswith(b"ok")


def test_changes_are_single_transactions_and_audited(world: PolicyWorld) -> None:
    """The chain for packets to the node comes and goes; somebody else's change of a tier is undone."""

    async def answered(who: str, to: str) -> bool:
        return await asyncio.to_thread(is_answered, world, who, to)

    async def scenario() -> None:
        enforcer = world.enforcer()
        fill(enforcer, PODS, [], SPACES)
        fill_cluster(enforcer, NODES)
        enforcer.start()
        await enforcer.sync()
        assert "hook input" not in world.node.run("nft", "list", "table", "ip", "nodewright-policy").stdout
        fill_cluster(enforcer, [out(egress("Deny", nodes())), DENY])
        await enforcer.sync()
        assert not await answered(POD1, NODE) and not await answered(POD2, POD1)
        assert not await enforcer.audit(deep=True), "our own writes are as we left them"
        tier = next(one for one in enforcer.programs[Family.IPV4].chains if one.startswith("tier-admin-ingress"))
        world.node.run("nft", "flush", "chain", "ip", "nodewright-policy", tier)
        assert await answered(POD2, POD1)
        assert await enforcer.audit(deep=False)
        await enforcer.sync()
        assert not await answered(POD2, POD1)
        for name in ("out", "deny"):
            enforcer.set_cluster_policy(name, None)
        await enforcer.sync()
        assert await answered(POD1, NODE) and await answered(POD2, POD1)
        left = world.node.run("nft", "list", "table", "ip", "nodewright-policy").stdout
        assert "to-node" not in left and "tier-" not in left and "deny-" not in left
        await enforcer.remove()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("cluster", "who", "to", "verdict", "said"),
    [
        (DENY, POD2, POD1, "DROP", "dropped: ClusterNetworkPolicy deny denies it (Admin tier, ingress[0])"),
        (BASE, POD2, POD1, "DROP", "dropped: ClusterNetworkPolicy base denies it (Baseline tier, ingress[0])"),
        (first("Accept"), POD2, POD1, "ACCEPT", "ClusterNetworkPolicy first accepts it (Admin tier, ingress[0])"),
        (
            first("Pass"),
            POD2,
            POD1,
            "ACCEPT",
            "ClusterNetworkPolicy first passes it on to the NetworkPolicies (Admin tier, ingress[0])",
        ),
        (
            out(egress("Deny", nodes(), name="no nodes")),
            POD1,
            "10.244.0.1",
            "DROP",
            "dropped: ClusterNetworkPolicy out denies it (Admin tier, egress[0] no nodes)",
        ),
    ],
    ids=["deny", "baseline", "accept", "pass", "own node"],
)
def test_trace_names_the_policy_that_decides(
    world: PolicyWorld, cluster: Json, who: str, to: str, verdict: str, said: str
) -> None:
    world.apply(PODS, [], SPACES, [node("node1", "10.244.0.1"), cluster])
    (outcome,) = world.traced(Packet(who, to, 8080, "tcp", "br0"))
    assert outcome.verdict == verdict
    assert said in [reason(hop, Facts()) for hop in outcome.trail]
