"""The clusters whose policy table is kept as text beside this file, in both families.

`python -m tests.golden.policy.cases` writes the text anew after a change that is meant; read the diff.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.model import Resolvers
from policy.plan import parse, parse_cluster
from policy.plan.index import Index
from policy.plan.program import Planner
from tests.builders.cluster_policies import (
    BASELINE,
    cluster_policy,
    domains,
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
from tests.builders.policies import apps, block, namespaces, pod, policy
from tests.golden.policy.text import dump

FOLDER = Path(__file__).parent
SPACES = {"a": {"team": "red"}, "b": {"team": "blue"}}
PODS = (
    pod("web", "10.244.0.11", "fd00:244::11", ports={"http": 8080}),
    pod("db", "10.244.0.12", "fd00:244::12", ports={"http": 8081}),
    pod("far", "10.244.1.13", "fd00:244:0:1::13", namespace="b", node="node2", ports={"http": 9090}),
    pod("host", "192.0.2.10", hostNetwork=True),
    pod("ended", "10.244.0.14", phase="Succeeded"),
)
NODES = (node("node1", "192.0.2.10", "2001:db8::10"), node("node2", "192.0.2.11", "2001:db8::11", zone="b"))
RESOLVERS = Resolvers((ip_address("10.96.0.10"), ip_address("fd00:96::a")))


@dataclass(frozen=True)
class Case:
    """`dump`: what the table of one family would be."""

    name: str
    policies: tuple[Json, ...]
    cluster: tuple[Json, ...] = ()

    def path(self, family: Family) -> Path:
        return FOLDER / f"{self.name}-{family.lower()}.nft"

    def dump(self, family: Family) -> str:
        index = Index()
        for name, labels in SPACES.items():
            index.set_namespace(name, labels)
        for obj in PODS:
            one = parse.pod(obj)
            index.set_pod(one.name, one)
        for obj in self.policies:
            found, _ = parse.policy(obj)
            index.set_policy(found.name, found)
        for obj in NODES:
            index.set_node(obj["metadata"]["name"], parse_cluster.node(obj))
        for obj in self.cluster:
            cluster, _ = parse_cluster.cluster_policy(obj)
            index.set_cluster_policy(obj["metadata"]["name"], cluster)
        planner = Planner(family, "node1", report=True, resolvers=RESOLVERS)
        return dump(planner.plan(index, index.take_changed())[0])


_PORTS: list[Json] = [{"port": 80, "endPort": 90}, {"port": 85, "endPort": 99}, {"port": 53, "protocol": "UDP"}]
CASES = (
    Case("none", ()),
    Case("deny-all", (policy("deny", policyTypes=["Ingress", "Egress"]),)),
    Case(
        "peers",
        (
            policy(
                "web",
                select={"app": "web"},
                ingress=[
                    {"from": [apps("db"), namespaces(team="blue")], "ports": _PORTS},
                    {"from": [block("10.0.0.0/8", "10.9.0.0/16"), block("fd00::/8")], "ports": [{"port": "http"}]},
                ],
            ),
            policy("both", select={"app": "web"}, ingress=[{"from": [namespaces(team="red") | apps("db")]}]),
        ),
    ),
    Case(
        "egress",
        (
            policy("dns", policyTypes=["Egress"], egress=[{"ports": [{"port": 53, "protocol": "UDP"}]}]),
            policy(
                "far",
                select={"app": "db"},
                policyTypes=["Egress"],
                egress=[{"to": [namespaces(team="blue")], "ports": [{"port": "http"}]}],
            ),
        ),
    ),
    Case(
        "cluster",
        (policy("own", select={"app": "db"}, ingress=[{"ports": [{"port": 5432}]}]),),
        (
            cluster_policy(
                "monitoring",
                priority=5,
                ingress=[
                    ingress("Accept", spaces(team="blue"), protocols=[port(9000, 9100), named("http")], name="scrape"),
                    ingress("Pass", pods("web")),
                    ingress("Deny", spaces(team="blue")),
                ],
            ),
            cluster_policy(
                "exits",
                priority=10,
                subject=pods("web"),
                egress=[
                    egress("Pass", nodes(zone="b")),
                    egress("Deny", networks("192.0.2.0/24", "192.0.2.128/25", "2001:db8::/32"), protocols=[port(22)]),
                ],
            ),
            cluster_policy("last", BASELINE, ingress=[ingress("Deny")]),
        ),
    ),
    Case(
        "domains",
        (),
        (
            cluster_policy(
                "names",
                subject=pods("web"),
                egress=[
                    egress("Accept", domains("*.example.com", "example.org"), protocols=[port(443)]),
                    egress("Deny", networks("0.0.0.0/0", "::/0")),
                ],
            ),
        ),
    ),
)


def main() -> None:
    for case in CASES:
        for family in Family:
            case.path(family).write_text(case.dump(family))


if __name__ == "__main__":
    main()
