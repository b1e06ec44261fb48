"""A node's links with the pods behind them, where its routes lead, a policy's rules, whatever a kernel prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.explain.facts import Facts
from cli.explain.wired import cluster_rules, table_rules, wired
from cli.policies.applying import Applying
from controlplane.machine.edge.wiring import Wiring
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.plan import parse, parse_cluster
from policy.plan.index import Index
from policy.plan.program import Planner
from tests.builders.cluster_policies import ADMIN, BASELINE, cluster_policy, egress, ingress, pods, spaces
from tests.builders.pods import pod_json
from tests.builders.policies import apps, pod, policy
from tests.builders.services import node
from view.model.network import Applied
from view.model.objects import CLUSTER_POLICY, POLICY

WEB = pod_json("web", meta={"namespace": "shop"}, status={"phase": "Running", "podIP": "10.0.1.2"}, nodeName="node1")


def _node(name: str, address: str, cidr: str) -> Json:
    found = node(name, address=address, cidr=cidr)
    found["spec"] |= {"podCIDRs": [cidr]}
    return found


FACTS = Facts.of(
    (), (), (WEB,), (_node("node1", "192.0.2.11", "10.0.1.0/24"), _node("node2", "192.0.2.12", "10.0.2.0/24"))
)
STATS = {"rx": {"packets": 7, "dropped": 1}, "tx": {"packets": 9, "dropped": 2}}
FOUND = Wiring(
    links=(
        {"ifname": "lo", "link_type": "loopback"},
        {"ifname": "nw0", "linkinfo": {"info_kind": "bridge"}, "operstate": "UP", "mtu": 1500, "stats64": STATS},
        {"ifname": "veth7", "linkinfo": {"info_kind": "veth"}, "master": "nw0", "operstate": "UP", "mtu": 1500},
    ),
    addresses=(
        {
            "ifname": "nw0",
            "addr_info": [
                {"local": "10.0.1.1", "prefixlen": 24, "scope": "global"},
                {"local": "fe80::1", "prefixlen": 64, "scope": "link"},
            ],
        },
    ),
    routes=(
        {"dst": "default", "gateway": "192.0.2.1", "dev": "eth0"},
        {"dst": "10.0.2.0/24", "gateway": "192.0.2.12", "dev": "eth0"},
        {"dst": "10.0.0.0/16", "type": "unreachable"},
        {"dst": "fe80::/64", "dev": "nw0"},
    ),
    forwarding=(
        {"mac": "0a:58:0a:00:01:02", "ifname": "veth7", "master": "nw0", "state": "static"},
        {"mac": "33:33:00:00:00:01", "ifname": "nw0"},
    ),
    sysctls={"ipv4/ip_forward": "1", "netfilter/nf_conntrack_max": "262144"},
)


def test_a_pod_is_found_behind_its_link_and_routes_lead_to_pods_of_nodes() -> None:
    found = wired(FOUND, FACTS, "node1")
    bridge, veth = found.links
    assert (bridge.kind, bridge.addresses, bridge.received, bridge.sent, bridge.dropped) == (
        "bridge",
        ("10.0.1.1/24",),
        7,
        9,
        3,
    )
    assert (veth.master, veth.behind) == ("nw0", "pod/shop/web") and '"ifname": "veth7"' in veth.text
    assert [(one.to, one.leads, one.node) for one in found.routes] == [
        ("default", "", ""),
        ("10.0.2.0/24", "pods of node2", "node2"),
        ("10.0.0.0/16", "", ""),
    ]
    assert [(one.name, one.value) for one in found.sysctls] == [
        ("net.ipv4.ip_forward", "1"),
        ("net.netfilter.nf_conntrack_max", "262144"),
    ]


def test_a_pod_of_another_node_is_behind_no_link_of_this_one() -> None:
    assert all(not one.behind for one in wired(FOUND, FACTS, "node2").links)


@pytest.mark.parametrize("odd", [{"ifname": 5, "linkinfo": "x", "stats64": [1], "mtu": "y"}, {}])
def test_objects_of_another_shape_do_no_harm(odd: Json) -> None:
    strange = replace(FOUND, links=(odd,), addresses=(odd,), forwarding=(odd,), routes=({"dst": None, "gateway": 5},))
    (link,) = wired(strange, FACTS, "node1").links
    assert link.mtu == 0 and link.behind == ""


def test_a_policy_s_rules_come_with_the_chain_that_drops_the_rest_and_the_pods_of_its_sets() -> None:
    peer = {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "@peer-1"}}
    drop = [{"counter": {"packets": 4, "bytes": 9}}, {"drop": None}]
    objects: list[Json] = [
        {"rule": {"chain": "policy-ingress-7", "expr": [peer, {"accept": None}], "comment": "shop/deny ingress[0]"}},
        {"rule": {"chain": "group-1", "expr": [{"jump": {"target": "policy-ingress-7"}}]}},
        {"rule": {"chain": "group-1", "expr": drop, "comment": "isolated by shop/deny"}},
        {"rule": {"chain": "group-2", "expr": [{"jump": {"target": "policy-ingress-8"}}]}},
        {"set": {"name": "peer-1", "elem": ["10.0.1.2", "10.0.2.2"]}},
        {"set": {"name": "peer-2", "elem": ["10.0.3.3"]}},
        {"set": "nonsense"},
        {"rule": {"chain": 5, "expr": "nonsense"}},
    ]
    found = list(table_rules(objects, ["policy-ingress-7"]))
    assert [one.chain for one in found] == ["policy-ingress-7", "group-1", "group-1", "set peer-1"]
    assert (found[2].packets, found[2].comment) == (4, "isolated by shop/deny")
    assert "10.0.1.2, 10.0.2.2" in found[3].text


def test_a_pod_is_isolated_by_the_policies_of_its_namespace_that_select_it() -> None:
    applying = Applying()
    select = {"app": "web"}
    both = policy("both", namespace="shop", select=select, policyTypes=["Ingress", "Egress"])
    one = policy("one", namespace="shop", select=select, ingress=[{"from": [apps("cart")]}])
    other = policy("other", namespace="shop", select={"app": "db"})
    for at, each in enumerate((both, one, other)):
        each["metadata"] |= {"uid": str(at), "resourceVersion": "1"}
    web = pod("web", "10.0.1.2", namespace="shop")
    assert applying(web, (both, one, other)) == (
        Applied(POLICY, "both", "ingress, egress"),
        Applied(POLICY, "one", "ingress"),
    )
    assert applying(pod("web", "10.0.1.2", namespace="shop", hostNetwork=True), (both,)) == ()
    changed = policy("one", namespace="shop", select={"app": "db"})
    changed["metadata"] |= {"uid": "1", "resourceVersion": "2"}
    assert applying(web, (changed,)) == ()


def test_cluster_policies_apply_by_the_labels_of_namespaces_in_the_order_in_which_they_decide() -> None:
    every = [
        cluster_policy("base", BASELINE, 1, ingress=[ingress("Deny")]),
        cluster_policy("late", ADMIN, 20, subject=spaces(team="shop"), egress=[egress("Deny")]),
        cluster_policy("early", ADMIN, 3, ingress=[ingress("Deny")], egress=[egress("Deny")]),
        cluster_policy("elsewhere", ADMIN, 4, subject=spaces(team="bank"), ingress=[ingress("Deny")]),
        cluster_policy("none", ADMIN, 5),
        cluster_policy("nonsense", "Middle", 5, ingress=[ingress("Deny")]),
    ]
    mine = policy("mine", namespace="shop", select={"app": "web"})
    web, space = pod("web", "10.0.1.2", namespace="shop"), {"metadata": {"name": "shop", "labels": {"team": "shop"}}}
    found = Applying()(web, [mine], every, space)
    assert found == (
        Applied(CLUSTER_POLICY, "early", "ingress, egress", "Admin"),
        Applied(CLUSTER_POLICY, "late", "egress", "Admin"),
        Applied(POLICY, "mine", "ingress"),
        Applied(CLUSTER_POLICY, "base", "ingress", "Baseline"),
    )
    assert Applying()(web, [mine], every, None) == (Applied(POLICY, "mine", "ingress"),), "nothing is known of it"


def test_a_cluster_policy_s_rules_are_those_that_the_daemon_has_written() -> None:
    every = [
        cluster_policy(
            "strict.v2",
            ingress=[ingress("Accept", pods("a"), name="let in"), ingress("Pass", pods("b")), ingress("Deny")],
        ),
        cluster_policy("strict", ADMIN, 20, ingress=[ingress("Pass", pods("c")), ingress("Deny", pods("d"))]),
    ]
    index = Index()
    index.set_namespace("shop", {})
    web = parse.pod(pod("web", "10.0.1.2", namespace="shop"))
    index.set_pod(web.name, web)
    read = [one for obj in every if (one := parse_cluster.cluster_policy(obj)[0]) is not None]
    for one in read:
        index.set_cluster_policy(one.name, one)
    program = Planner(Family.IPV4, "node1", report=True).plan(index, index.take_changed())[0]
    objects: list[Json] = [
        {"rule": {"chain": chain, "expr": _jumps(one.text(Family.IPV4)), "comment": one.comment}}
        for chain, rules in program.chains.items()
        for one in rules
    ]
    notes = [[one.comment for one in cluster_rules(objects, policy) if one.comment] for policy in read]
    deny, passing = "Admin ingress[2] of strict.v2", "Admin ingress[1] of strict.v2"
    assert sorted(notes[0]) == sorted(["Admin ingress[0] of strict.v2 let in", passing, deny, deny])
    assert sorted(notes[1]) == ["Admin ingress[0] of strict", *["Admin ingress[1] of strict"] * 2]
    mine = [one.chain.rpartition("-")[0] for one in cluster_rules(objects, read[1])]
    kinds = [one.partition("-")[0] for one in mine]
    assert kinds == sorted(kinds, key=["tier", "cluster", "deny"].index), "with the jumps to it, as a packet meets them"
    assert kinds[0] == "tier"


def _jumps(text: str) -> list[Json]:
    words = text.partition(' comment "')[0].split()
    return [{verb: {"target": words[words.index(verb) + 1]}} for verb in ("jump", "goto") if verb in words]
