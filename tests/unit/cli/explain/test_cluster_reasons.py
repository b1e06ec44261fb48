"""What `trace` says of the rules of ClusterNetworkPolicies, as the policy daemon writes them."""

from __future__ import annotations

import pytest

from cli.explain.facts import Facts
from cli.explain.reasons import decides, reason
from nodelib.firewall.objects import Family
from nodelib.firewall.trace_model import Hop
from policy.plan import parse, parse_cluster
from policy.plan.index import Index
from policy.plan.program import Planner
from tests.builders.cluster_policies import BASELINE, cluster_policy, ingress, pods
from tests.builders.policies import pod

POLICIES = [
    cluster_policy(
        "strict.v2",
        ingress=[
            ingress("Accept", pods("a"), name='let "a" drop in'),
            ingress("Pass", pods("b")),
            ingress("Deny"),
        ],
    ),
    cluster_policy("last", BASELINE, ingress=[ingress("Pass", pods("b")), ingress("Deny", name="the rest")]),
]
SAID = {
    "ClusterNetworkPolicy strict.v2 accepts it (Admin tier, ingress[0] let a drop in)",
    "ClusterNetworkPolicy strict.v2 passes it on to the NetworkPolicies (Admin tier, ingress[1])",
    "dropped: ClusterNetworkPolicy strict.v2 denies it (Admin tier, ingress[2])",
    "ClusterNetworkPolicy last leaves it to the default, which allows it (Baseline tier, ingress[0])",
    "dropped: ClusterNetworkPolicy last denies it (Baseline tier, ingress[1] the rest)",
    "dropped: it belongs to no connection",
    "dropped: not the address of one pod, and a pod of this node is isolated",
    "dropped: a pod sends by its own addresses only",
}


def test_every_rule_that_has_an_effect_is_named_and_jumps_are_not() -> None:
    index = Index()
    index.set_namespace("a", {})
    one = parse.pod(pod("a", "10.0.0.1"))
    index.set_pod(one.name, one)
    for obj in POLICIES:
        index.set_cluster_policy(obj["metadata"]["name"], parse_cluster.cluster_policy(obj)[0])
    program = Planner(Family.IPV4, "node1", report=True).plan(index, index.take_changed())[0]
    hops = [
        Hop("ip nodewright-policy", chain, one.text(Family.IPV4))
        for chain, rules in program.chains.items()
        for one in rules
        if chain not in ("ingress", "egress")
    ]
    deciding = [hop for hop in hops if decides(hop)]
    assert {reason(hop, Facts()) for hop in deciding} == SAID
    assert [hop.text for hop in hops if hop not in deciding and reason(hop, Facts())] == []


@pytest.mark.parametrize("text", ["accept", 'accept comment "Admin ingress[x] of y"', "", 'comment "of"'])
def test_a_rule_of_somebody_else_has_no_sentence(text: str) -> None:
    assert reason(Hop("ip x", "cluster-ingress-1-0", text), Facts()) == ""
