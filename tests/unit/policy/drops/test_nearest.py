"""Why a policy did not allow a flow, and which of its rules came nearest."""

from __future__ import annotations

import time
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network, ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from policy.drops.model import Flow, Near
from policy.drops.plan.nearest import Looks, best, near, remedy
from policy.model import Direction, Requirement
from policy.plan import layout, parse
from policy.plan.directory import Directory
from tests.builders.policies import apps, block, namespaces, pod, policy
from tests.fakes.policy_kernel import Flow as KernelFlow
from tests.fakes.policy_kernel import allowed
from tests.unit.policy.world import planned

A, B, C, OUT = "10.0.0.1", "10.0.0.2", "10.0.1.3", "192.0.2.1"
SPACES = {"a": {"team": "red"}, "b": {"team": "blue"}}
PODS = [pod("a1", A, ports={"web": 80}), pod("a2", B), pod("b1", C, namespace="b", ports={"web": 81})]


def found(obj: Json, flow: Flow) -> Near:
    directory = Directory("node1")
    for name, labels in SPACES.items():
        directory.set_namespace(name, labels)
    for one in map(parse.pod, PODS):
        directory.set_pod(one.name, one)
    return near(parse.policy(obj)[0], flow, directory.party(flow.client), directory.party(flow.server), Looks())


def ingress(client: str = B, port: int = 80, protocol: str = "TCP") -> Flow:
    return Flow(Direction.INGRESS, ip_address(client), ip_address(A), protocol, port)


def egress(server: str, port: int = 80, protocol: str = "TCP") -> Flow:
    return Flow(Direction.EGRESS, ip_address(A), ip_address(server), protocol, port)


RED = {"from": [namespaces(team="red")]}


@pytest.mark.parametrize(
    ("rules", "flow", "missing", "text"),
    [
        pytest.param([], ingress(), "rule", "it has no ingress rule, so it allows nothing", id="none"),
        pytest.param(
            [RED | {"ports": [{"port": 81}]}],
            ingress(),
            "port",
            "ingress[0] allows this peer, but only 81/TCP, not 80/TCP",
            id="port",
        ),
        pytest.param(
            [{"from": [apps("b1")], "ports": [{"port": 80}]}],
            ingress(),
            "peer",
            "ingress[0] allows 80/TCP, but only from pods app=b1 of namespace a",
            id="peer",
        ),
        pytest.param(
            [{"from": [apps("b1")], "ports": [{"port": 81}]}],
            ingress(),
            "peer and port",
            "its only ingress rule allows neither this peer nor port 80/TCP",
            id="both",
        ),
        pytest.param(
            [{"from": [apps("b1")], "ports": [{"port": 81}]}, RED | {"ports": [{"port": 1, "endPort": 9}]}],
            ingress(),
            "port",
            "ingress[1] allows this peer, but only 1-9/TCP, not 80/TCP",
            id="the nearest of two",
        ),
        pytest.param(
            [{"from": [block("10.0.0.0/8", "10.0.0.2/32")]}],
            ingress(),
            "peer",
            "ingress[0] allows 80/TCP, but only from 10.0.0.0/8 except 10.0.0.2/32",
            id="excepted",
        ),
        pytest.param(
            [{"ports": [{"port": "db"}, {"protocol": "UDP"}]}],
            ingress(),
            "port",
            "ingress[0] allows this peer, but only every UDP port, the port named db/TCP, not 80/TCP",
            id="a name that it has not, and another protocol",
        ),
        pytest.param(
            [{"ports": [{"port": 80}]}],
            ingress(port=0, protocol="ICMP"),
            "port",
            "ingress[0] allows this peer, but only 80/TCP, not ICMP",
            id="no ports",
        ),
        pytest.param(
            [{"from": [{"namespaceSelector": {}}]}],
            ingress(OUT),
            "peer",
            "ingress[0] allows 80/TCP, but only from every pod of every namespace",
            id="outside",
        ),
        pytest.param(
            [RED],
            ingress(),
            "",
            "ingress[0] allows it now: policy or pod has changed, or the packet belonged to no connection",
            id="changed meanwhile",
        ),
    ],
)
def test_of_ingress(rules: list[Json], flow: Flow, missing: str, text: str) -> None:
    nearest = found(policy(ingress=rules), flow)
    assert (nearest.missing, nearest.text) == (missing, text)


def test_named_ports_of_egress_are_those_of_the_server() -> None:
    obj = policy(policyTypes=["Egress"], egress=[{"to": [apps("a2")], "ports": [{"port": "web"}]}])
    assert found(obj, egress(C, 81)).text == "egress[0] allows 81/TCP, but only to pods app=a2 of namespace a"
    assert found(obj, egress(C, 80)).missing == "peer and port"


def test_what_would_allow_it_is_the_least_that_is_missing() -> None:
    flow = ingress()
    every = [
        found(policy("none"), flow),
        found(policy("far", ingress=[{"from": [apps("x")], "ports": [{"port": 1}]}]), flow),
        found(policy("near", ingress=[{"from": [apps("x")]}]), flow),
    ]
    assert [remedy(best(every[: count + 1]), flow) for count in range(3)] == [
        "an ingress rule in a/none for this peer and port 80/TCP",
        "a rule of a/far for this peer and port 80/TCP",
        "a/near ingress[0], if it selected the peer",
    ]
    assert remedy(best([]), flow) == ""


def test_a_policy_of_100000_peers_and_ports_is_read_in_part() -> None:
    entry: Json = {"from": [block(f"198.51.{n >> 8}.{n & 255}/32") for n in range(10_000)]}
    obj = policy(ingress=[entry | {"ports": [{"port": 1000 + n} for n in range(100)]}] * 10)
    flow, read = ingress(), parse.policy(obj)[0]
    began = time.perf_counter()
    directory = Directory("node1")
    nearest = near(read, flow, directory.party(flow.client), directory.party(flow.server), Looks())
    assert time.perf_counter() - began < 0.1
    assert "only part of it was looked at" in nearest.text and len(nearest.text) < 600


def test_of_selectors_with_many_requirements_fewer_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each packet to another port is explained: those of one pod took all of the daemon's time, and it answered nobody
    who wanted to start a pod.
    """
    asked: list[str] = []

    def fits(self: Requirement, labels: Mapping[str, str]) -> bool:
        asked.append(self.key)
        return self.operator == "DoesNotExist"

    monkeypatch.setattr(Requirement, "fits", fits)
    nearly = [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(100)]
    unfit = {"podSelector": {"matchExpressions": [*nearly, {"key": "z", "operator": "Exists"}]}}
    nearest = found(policy(ingress=[{"from": [apps(f"x{number}"), unfit]} for number in range(1000)]), ingress())
    assert "only part of it was looked at" in nearest.text
    assert len(asked) < 10_000


def test_of_a_network_with_many_exceptions_fewer_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a megabyte has 70,000: compared with each, sixteen packets held the daemon's loop for seconds."""
    compared: list[object] = []

    def contains(self: IPv4Network, address: IPv4Address) -> bool:
        compared.append(address)
        return self.prefixlen == 0

    monkeypatch.setattr(IPv4Network, "__contains__", contains)
    many = [f"20.{n >> 15}.{n >> 7 & 255}.{n << 1 & 255}/32" for n in range(20_000)]
    nearest = found(policy(ingress=[{"from": [block("0.0.0.0/0", *many)], "ports": [{"port": 1}]}]), ingress(OUT))
    assert "only part of it was looked at" in nearest.text
    assert len(compared) < 10_000


def test_what_there_are_no_looks_for_is_not_gone_through() -> None:
    """A pod has many policies, each with a hundred thousand ports that the rules have as one range."""
    taken: list[object] = []

    class Counted(Looks):
        def take(self, of: object) -> bool:
            taken.append(of)
            return super().take(of)

    directory, looks, flow = Directory("node1"), Counted(), ingress(OUT)
    ends = directory.party(flow.client), directory.party(flow.server)
    entry = {"from": [block("10.0.0.0/8")] * 2, "ports": [{"port": 1000 + number} for number in range(5000)]}
    read = [parse.policy(policy(f"p{number}", ingress=[entry] * 3))[0] for number in range(20)]
    every = [near(one, flow, *ends, looks) for one in read]
    assert len(taken) < 2500
    assert all("only part of it was looked at" in one.text for one in every)


def test_a_requirement_with_very_many_values_is_told_in_part() -> None:
    nearest = found(policy(ingress=[{"from": [apps(*(f"x{number}" for number in range(10_000)))]}]), ingress())
    assert "and 9996 more" in nearest.text


_PORTS = st.lists(
    st.fixed_dictionaries({"port": st.sampled_from([80, 81, "web"]), "protocol": st.sampled_from(["TCP", "UDP"])}),
    max_size=2,
)
_PEERS = st.lists(
    st.sampled_from([apps("a2"), apps("b1"), namespaces(team="blue"), block("10.0.0.0/24", "10.0.0.2/32")]), max_size=2
)
_RULES = st.lists(st.fixed_dictionaries({"from": _PEERS, "ports": _PORTS}), max_size=3)


@settings(max_examples=60, deadline=None)
@given(_RULES, st.sampled_from([B, C, OUT]), st.sampled_from([80, 81]), st.sampled_from(["TCP", "UDP"]))
def test_nothing_is_missing_exactly_where_the_kernels_rules_allow(
    rules: list[Any], client: str, port: int, protocol: str
) -> None:
    obj = policy(select={"app": "a1"}, ingress=rules)
    flow = ingress(client, port, protocol)
    passes = allowed(planned(PODS, [obj], Family.IPV4), KernelFlow(client, A, layout.PROTOCOLS[protocol], port))
    assert (found(obj, flow).missing == "") is passes
