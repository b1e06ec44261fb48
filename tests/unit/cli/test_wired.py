"""A node's links with the pods behind them, where its routes lead, a policy's rules, whatever a kernel prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.explain.facts import Facts
from cli.explain.wired import table_rules, wired
from cli.policies.isolating import Isolating
from controlplane.machine.edge.wiring import Wiring
from nodelib.json_values import Json
from tests.builders.pods import pod_json
from tests.builders.policies import apps, pod, policy
from tests.builders.services import node

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
    assert "10.0.2.2" in found[3].text


def test_a_pod_is_isolated_by_the_policies_of_its_namespace_that_select_it() -> None:
    isolating = Isolating()
    select = {"app": "web"}
    both = policy("both", namespace="shop", select=select, policyTypes=["Ingress", "Egress"])
    one = policy("one", namespace="shop", select=select, ingress=[{"from": [apps("cart")]}])
    other = policy("other", namespace="shop", select={"app": "db"})
    for at, each in enumerate((both, one, other)):
        each["metadata"] |= {"uid": str(at), "resourceVersion": "1"}
    web = pod("web", "10.0.1.2", namespace="shop")
    assert isolating(web, (both, one, other)) == {"both": "ingress, egress", "one": "ingress"}
    assert isolating(pod("web", "10.0.1.2", namespace="shop", hostNetwork=True), (both,)) == {}
    changed = policy("one", namespace="shop", select={"app": "db"})
    changed["metadata"] |= {"uid": "1", "resourceVersion": "2"}
    assert isolating(web, (changed,)) == {}
