"""A cluster of three pods for the tests of policies, and NetworkPolicy as its reference describes it.

`allows()` judges the objects themselves, one rule after the other: what the tables do is compared with it.
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import Any

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.plan import parse
from policy.plan.index import Index
from policy.plan.program import Planner, Program
from tests.builders.policies import pod
from tests.fakes.policy_kernel import Flow

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.1.3"
SPACES = {"a": {"team": "red"}, "b": {"team": "blue"}}
PODS = [pod("a1", A, ports={"web": 80}), pod("a2", B), pod("b1", C, namespace="b", ports={"web": 81})]


def indexed(pods: list[Json], policies: list[Json]) -> Index:
    index = Index()
    for name, labels in SPACES.items():
        index.set_namespace(name, labels)
    for obj in pods:
        one = parse.pod(obj)
        index.set_pod(one.name, one)
    for obj in policies:
        found, _ = parse.policy(obj)
        index.set_policy(found.name, found)
    return index


def planned(pods: list[Json], policies: list[Json], family: Family = Family.IPV4) -> Program:
    index = indexed(pods, policies)
    return Planner(family, "node1", report=True).plan(index, index.take_changed())[0]


def numbered(policies: list[Json]) -> list[Json]:
    return [one | {"metadata": {**one["metadata"], "name": f"p{at}"}} for at, one in enumerate(policies)]


def allows(policies: list[Json], flow: Flow, directions: tuple[str, ...] = ("Ingress", "Egress")) -> bool:
    """Whether the policies allow the flow."""
    if flow.client == flow.server:
        return True
    ends = {obj["status"]["podIPs"][0]["ip"]: obj for obj in PODS}
    for direction, own, other, key in (
        ("Ingress", flow.server, flow.client, "from"),
        ("Egress", flow.client, flow.server, "to"),
    ):
        policies_of_pod = isolating(policies, ends.get(own), direction) if direction in directions else []
        rules = [(one, rule) for one in policies_of_pod for rule in one["spec"][direction.lower()]]
        if policies_of_pod and not any(
            _peer_fits(one["metadata"]["namespace"], rule.get(key), other, ends)
            and _port_fits(rule.get("ports"), flow, ends)
            for one, rule in rules
        ):
            return False
    return True


def isolating(policies: list[Json], pod_: Json | None, direction: str) -> list[Json]:
    """The policies that isolate the pod."""
    return [
        one
        for one in policies
        if pod_ is not None
        and direction in one["spec"]["policyTypes"]
        and one["metadata"]["namespace"] == pod_["metadata"]["namespace"]
        and fits(one["spec"]["podSelector"], pod_["metadata"]["labels"])
    ]


def fits(selector: Json, labels: Json) -> bool:
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for one in selector.get("matchExpressions", []):
        there = one["key"] in labels
        inside = labels.get(one["key"]) in one.get("values", [])
        if not {"In": inside, "NotIn": not inside, "Exists": there, "DoesNotExist": not there}[one["operator"]]:
            return False
    return True


def _peer_fits(namespace: str, peers: list[Json] | None, address: str, ends: dict[str, Json]) -> bool:
    if not peers:
        return True
    pod_ = ends.get(address)
    for peer in peers:
        if "ipBlock" in peer:
            inside = ip_address(address) in ip_network(peer["ipBlock"]["cidr"])
            if inside and not any(ip_address(address) in ip_network(one) for one in peer["ipBlock"]["except"]):
                return True
        elif pod_ is not None:
            theirs = pod_["metadata"]["namespace"]
            space = (
                fits(peer["namespaceSelector"], SPACES[theirs]) if "namespaceSelector" in peer else theirs == namespace
            )
            if space and fits(peer.get("podSelector", {}), pod_["metadata"]["labels"]):
                return True
    return False


def _port_fits(ports: list[dict[str, Any]] | None, flow: Flow, ends: dict[str, Json]) -> bool:
    if not ports:
        return True
    protocol = {6: "TCP", 17: "UDP"}[flow.protocol]
    for port in ports:
        if port.get("protocol", "TCP") != protocol:
            continue
        if "port" not in port:
            return True
        if port["port"] == "web":
            target = ends.get(flow.server)
            declared = target["spec"]["containers"][0]["ports"] if target else []
            if any(one["name"] == "web" and one["containerPort"] == flow.port for one in declared):
                return True
        elif port["port"] <= flow.port <= (port.get("endPort") or port["port"]):
            return True
    return False
