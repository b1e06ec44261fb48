"""What is known of Services and their endpoints: counted as they come, whatever their number."""

from __future__ import annotations

import time

import pytest

from loadbalancer.model import Name
from loadbalancer.plan.index import Index
from nodelib.json_values import Json
from tests.builders.balanced import balanced


def part(name: str, service: str, *nodes: str) -> Json:
    meta = {"name": name, "namespace": "a", "labels": {"kubernetes.io/service-name": service}}
    return {"metadata": meta, "endpoints": [{"nodeName": one} for one in nodes]}


def test_endpoints_are_those_of_all_slices() -> None:
    index, x = Index(), Name("a", "x")
    index.slice("ADDED", part("x-1", "x", "n1", "n1", "n2"))
    index.slice("ADDED", part("x-2", "x", "n2", "n3"))
    assert index.endpoints(x).ready == {"n1": 2, "n2": 2, "n3": 1}
    index.slice("MODIFIED", part("x-1", "x", "n1"))
    assert index.endpoints(x).ready == {"n1": 1, "n2": 1, "n3": 1}
    index.slice("MODIFIED", part("x-2", "y", "n2"))
    assert index.endpoints(x).ready == {"n1": 1} and index.endpoints(Name("a", "y")).ready == {"n2": 1}
    index.slice("DELETED", part("x-1", "x"))
    assert not index.endpoints(x).ready


@pytest.mark.parametrize(("local", "ours"), [(True, True), (False, True), (True, False)])
def test_what_is_wanted_is_known_without_a_look_at_every_service(local: bool, ours: bool) -> None:
    index = Index()
    policy = "Local" if local else "Cluster"
    one = balanced("x", externalTrafficPolicy=policy, loadBalancerClass=None if ours else "other")
    for _ in range(2):
        index.service("MODIFIED", one)
        assert (index.wanted, index.needs_endpoints) == (ours, ours and local)
    index.service("MODIFIED", balanced("x", loadBalancerClass="other"))
    assert not index.wanted and not index.needs_endpoints
    index.service("MODIFIED", one)
    index.service("DELETED", {"metadata": {"name": "x", "namespace": "a"}})
    assert not index.wanted and not index.needs_endpoints


def test_services_of_others_and_slices_without_number_cost_little() -> None:
    """Each change was compared with all Services, and each round went through all slices of those with policy Local,
    on the loop by which the leader lives."""
    index = Index()
    foreign = [balanced(f"x{number}", loadBalancerClass="other") for number in range(5000)]
    began = time.process_time()
    for one in foreign:
        index.service("ADDED", one)
        assert not index.wanted and not index.needs_endpoints
    assert time.process_time() - began < 1.0
    index.service("ADDED", balanced("web", externalTrafficPolicy="Local"))
    names = [f"n{number}" for number in range(1000)]
    for number in range(300):
        index.slice("ADDED", part(f"web-{number}", "web", *names))
    began = time.process_time()
    for _ in range(100):
        assert len(index.endpoints(Name("a", "web")).ready) == 1000
    assert time.process_time() - began < 0.2


def test_names_of_nodes_are_bounded() -> None:
    index = Index()
    for number in range(20):
        index.slice("ADDED", part(f"web-{number}", "web", *(f"n{number}-{one}" for one in range(1000))))
    assert len(index.endpoints(Name("a", "web")).ready) == 5000
