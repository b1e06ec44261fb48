"""What is read of API objects: defaults, and what happens to what cannot be understood."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib.json_values import Json
from policy.model import Direction, NamedPort, PortRange
from policy.plan import parse
from tests.builders.policies import apps, block, pod, policy

IN, OUT = Direction.INGRESS, Direction.EGRESS


@pytest.mark.parametrize(
    ("spec", "directions"),
    [
        ({}, {IN}),
        ({"ingress": [{}]}, {IN}),
        ({"egress": []}, {IN}),
        ({"egress": [{}]}, {IN, OUT}),
        ({"policyTypes": ["Egress"]}, {OUT}),
        ({"policyTypes": ["Ingress", "Egress"]}, {IN, OUT}),
        ({"policyTypes": ["Ingress"], "egress": [{}]}, {IN}),
    ],
)
def test_policy_types_have_the_defaults_of_the_api(spec: Json, directions: set[Direction]) -> None:
    found, problems = parse.policy(policy(**spec))
    assert set(found.rules) == directions
    assert not problems


@pytest.mark.parametrize(
    ("port", "ranges", "named"),
    [
        ({"port": 80}, (PortRange("TCP", 80, 80),), ()),
        ({"port": 80, "endPort": 90, "protocol": "UDP"}, (PortRange("UDP", 80, 90),), ()),
        ({"protocol": "SCTP"}, (PortRange("SCTP", 0, 65535),), ()),
        ({"port": "dns", "protocol": "UDP"}, (), (NamedPort("UDP", "dns"),)),
    ],
)
def test_ports(port: Json, ranges: Any, named: Any) -> None:
    found, problems = parse.policy(policy(ingress=[{"ports": [port]}]))
    (rule,) = found.rules[IN]
    assert (rule.ports, rule.named, problems) == (ranges, named, [])


def test_no_peers_and_no_ports_are_everybody_and_every_port() -> None:
    found, _ = parse.policy(policy(ingress=[{}, {"from": [], "ports": []}]))
    assert [(rule.peers, rule.ports) for rule in found.rules[IN]] == [(None, None), (None, None)]


@pytest.mark.parametrize(
    "entry",
    [
        {"ports": [{"port": 0}]},
        {"ports": [{"port": 80, "endPort": 79}]},
        {"ports": [{"port": 70000}]},
        {"ports": [{"protocol": "ICMP"}]},
        {"ports": [{"port": True}]},
        {"ports": "80"},
        {"from": [{}]},
        {"from": [block("10.0.0.0/33")]},
        {"from": [block("10.0.0.0/8", "fe80::1%\n/64")]},
        {"from": [block("10.0.0.0/8") | apps("x")]},
        {"from": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Like", "values": []}]}}]},
        {"from": {"podSelector": {}}},
    ],
)
def test_what_is_not_understood_allows_nothing_and_is_told(entry: Json) -> None:
    found, problems = parse.policy(policy(ingress=[entry]))
    assert len(problems) == 1
    assert problems[0].obj == "NetworkPolicy a/p"
    for rule in found.rules[IN]:
        assert rule.peers == () or rule.ports == (), "it must not become everybody or every port"


def test_a_policy_whose_pods_are_unknown_closes_its_namespace() -> None:
    obj = policy()
    obj["spec"]["podSelector"] = "all"
    found, problems = parse.policy(obj)
    assert found.selection.pods.fits({}) and found.selection.namespace == "a"
    assert problems


def test_a_selector_with_very_many_requirements_is_not_understood() -> None:
    """Each of them is asked of every pod of the cluster: 25,000 took two seconds with a thousand pods."""
    long = {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"} for number in range(200)]}
    found, problems = parse.policy(policy(ingress=[{"from": [{"podSelector": long}, apps("x")]}]))
    assert len(found.rules[Direction.INGRESS][0].peers or ()) == 1
    assert ["has 200 requirements" in one.message for one in problems] == [True]


def test_pods_of_the_host_network_and_those_that_have_ended_have_no_address() -> None:
    assert parse.pod(pod("x", "10.0.0.1")).addresses
    assert not parse.pod(pod("x", "10.0.0.1", hostNetwork=True)).addresses
    assert not parse.pod(pod("x", "10.0.0.1", phase="Succeeded")).addresses


def test_a_mirror_pod_has_the_uid_that_the_runtime_knows() -> None:
    obj = pod("static", "10.0.0.1")
    obj["metadata"]["annotations"] = {"kubernetes.io/config.hash": "abc", "kubernetes.io/config.mirror": "abc"}
    assert parse.pod(obj).uid == "abc"


_KEYS = [
    *("metadata", "spec", "status", "podSelector", "ingress", "egress", "from", "to", "ports", "port", "ipBlock"),
    *("cidr", "except", "matchLabels", "matchExpressions", "podIPs", "ip", "containers", "policyTypes"),
]
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=4),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), _ANYTHING))
def test_reading_never_raises(obj: Json) -> None:
    parse.policy(obj)
    parse.pod(obj)
    parse.namespace_labels(obj)
