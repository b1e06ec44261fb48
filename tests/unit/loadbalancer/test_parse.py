"""Services and EndpointSlices as the API, or somebody who is not it, has them."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadbalancer.plan import parse
from nodelib.json_values import Json
from tests.builders.balanced import balanced, service


@pytest.mark.parametrize(
    ("spec", "ours"),
    [
        pytest.param({}, True, id="no-class"),
        pytest.param({"loadBalancerClass": "nodewright.io/load-balancer"}, True, id="our-class"),
        pytest.param({"loadBalancerClass": "example.com/other"}, False, id="another-class"),
        pytest.param({"type": "NodePort"}, False, id="another-type"),
    ],
)
def test_which_services_are_ours(spec: Json, ours: bool) -> None:
    assert service(**spec).ours is ours


@pytest.mark.parametrize(
    ("more", "requested", "reason"),
    [
        pytest.param({}, [], "", id="none"),
        pytest.param({"loadBalancerIP": "192.0.2.7"}, ["192.0.2.7"], "", id="field"),
        pytest.param({"ips": "192.0.2.8", "loadBalancerIP": "192.0.2.7"}, ["192.0.2.8"], "", id="annotation-wins"),
        pytest.param(
            {"ips": "192.0.2.8, fd00::8", "ipFamilies": ["IPv4", "IPv6"]}, ["192.0.2.8", "fd00::8"], "", id="both"
        ),
        pytest.param({"ips": "fd00::8"}, ["fd00::8"], "WrongFamily", id="wrong-family"),
        pytest.param({"ips": "192.0.2.8,192.0.2.9"}, [], "TwoWishes", id="two-of-one-family"),
        pytest.param({"ips": "x" * 100000}, [], "NoAddress", id="no-address"),
        pytest.param({"loadBalancerIP": "fe80::1%x\n"}, [], "NoAddress", id="zone"),
    ],
)
def test_requested_addresses(more: dict[str, Any], requested: list[str], reason: str) -> None:
    found = service(**more)
    assert list(map(str, found.requested)) == requested
    assert (found.problem.reason if found.problem else "") == reason
    assert found.problem is None or len(found.problem.note) < 300


@pytest.mark.parametrize(
    ("entry", "clean"),
    [
        ({"ip": "192.0.2.7", "ipMode": "VIP"}, True),
        ({"ip": "192.0.2.7"}, False),
        ({"ip": "192.0.2.7", "ipMode": "Proxy"}, False),
        ({"ip": "192.0.2.7", "ipMode": "VIP", "hostname": "x"}, False),
    ],
)
def test_a_status_that_is_not_as_we_write_it_is_written_again(entry: Json, clean: bool) -> None:
    obj = balanced()
    obj["status"] = {"loadBalancer": {"ingress": [entry]}}
    found = parse.service(obj)
    assert found.current == (ip_address("192.0.2.7"),) and found.clean is clean


def test_nodes_of_endpoints() -> None:
    endpoints = [
        {"nodeName": "n1", "conditions": {"ready": True}},
        {"nodeName": "n2", "conditions": {"ready": False, "serving": True, "terminating": True}},
        {"nodeName": "n3", "conditions": {"ready": False, "serving": False}},
        {"nodeName": "n4"},
        {"nodeName": "n4", "conditions": {"ready": None}},
        {"conditions": {}},
    ]
    meta = {"name": "x", "namespace": "a", "labels": {"kubernetes.io/service-name": "web"}}
    name, ready, serving = parse.endpoint_nodes({"metadata": meta, "endpoints": endpoints})
    assert str(name) == "a/web" and ready == {"n1": 1, "n4": 2} and serving == {"n2": 1}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_FIELDS = ("type", "loadBalancerIP", "loadBalancerClass", "ipFamilies", "ports", "selector", "externalTrafficPolicy")


@given(spec=st.fixed_dictionaries({}, optional=dict.fromkeys(_FIELDS, _JSON)), status=_JSON, notes=_JSON, rest=_JSON)
def test_nothing_that_anybody_writes_raises(spec: Json, status: Any, notes: Any, rest: Any) -> None:
    found = parse.service({"metadata": {"annotations": notes, "uid": rest}, "spec": spec, "status": status})
    assert found.families
    parse.endpoint_nodes({"metadata": rest, "endpoints": status})


def test_a_selector_of_a_megabyte_is_not_kept() -> None:
    """All Services of type LoadBalancer are in the memory of every node's daemon."""
    large = {f"example.com/{number:05}": "y" * 63 for number in range(10_000)}
    one, other = service(selector=large), service(selector={**large, "a": "b"})
    assert len(one.selector) < 100 and one.selector != other.selector
    assert one.selector == service(selector=dict(reversed(large.items()))).selector
