"""Whatever the API sends: no crash, no text that is not ours, and all other Services are served."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan.addresses import parse_cidr, parse_ip
from proxy.plan.nftables.sync import AppliedState, plan
from proxy.plan.node import parse_node
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.fakes.fake_iptables import FakeIptables
from tests.unit.proxy.build import CONTEXT, HERE, POD, flow, plan_full

junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
text = st.sampled_from(["a", "b", "", "A B", 'q"', "x\n-A INPUT -j DROP", "\\", "ü", "-j", "!"]) | st.text(max_size=6)
address = (
    st.sampled_from(["172.30.0.9", "10.1.0.9", "fd00::1", "", "None", "1.2.3", "0.0.0.0", "::", "255.255.255.255"])
    | text
)
number = st.integers(-2, 70000) | st.none() | st.just("80")
cidr = st.sampled_from(["10.0.0.0/8", "0.0.0.0/0", " 10.1.0.0/16 ", "fd00::/8", "10.0.0.0/40", "x/8"]) | text
maybe = st.one_of


def mapping(**fields: Any) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({}, optional={name: value | junk for name, value in fields.items()})


services = mapping(
    metadata=mapping(namespace=text, name=text),
    spec=mapping(
        type=st.sampled_from(["ClusterIP", "NodePort", "LoadBalancer", "ExternalName"]),
        clusterIP=address,
        clusterIPs=st.lists(address, max_size=2),
        ipFamilies=st.lists(st.sampled_from(["IPv4", "IPv6"]), max_size=2),
        ports=st.lists(
            mapping(name=text, port=number, nodePort=number, protocol=st.sampled_from(["TCP", "UDP", "SCTP", "X"])),
            max_size=3,
        ),
        externalIPs=st.lists(address, max_size=3),
        loadBalancerSourceRanges=st.lists(cidr, max_size=3),
        sessionAffinity=st.sampled_from(["ClientIP", "None"]),
        sessionAffinityConfig=mapping(clientIP=mapping(timeoutSeconds=number)),
        externalTrafficPolicy=st.sampled_from(["Local", "Cluster"]),
        internalTrafficPolicy=st.sampled_from(["Local", "Cluster"]),
        healthCheckNodePort=number,
    ),
    status=mapping(loadBalancer=mapping(ingress=st.lists(mapping(ip=address, ipMode=text), max_size=2))),
)
slices = mapping(
    metadata=mapping(
        namespace=text, name=text, labels=st.fixed_dictionaries({"kubernetes.io/service-name": text | junk})
    ),
    addressType=st.sampled_from(["IPv4", "IPv6", "FQDN"]),
    ports=st.lists(mapping(name=text, port=number, protocol=st.sampled_from(["TCP", "UDP", "SCTP", "X"])), max_size=3),
    endpoints=st.lists(
        mapping(
            addresses=st.lists(address, max_size=2),
            nodeName=text,
            conditions=mapping(ready=st.booleans(), serving=st.booleans(), terminating=st.booleans()),
            hints=mapping(
                forZones=st.lists(mapping(name=text), max_size=2), forNodes=st.lists(mapping(name=text), max_size=2)
            ),
        ),
        max_size=3,
    ),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(services, max_size=4), st.lists(slices, max_size=4), st.sampled_from(list(Family)))
def test_malformed_objects_never_crash_and_never_harm_others(
    bad_services: list[Any], bad_slices: list[Any], family: Family
) -> None:
    tracker = Tracker(family, HERE, 0.0)
    tracker.service(service("good", "172.30.200.1", namespace="safe"))
    tracker.endpoint_slice(endpoint_slice("good", ["10.180.200.1"], namespace="safe"))
    for obj in bad_services:
        tracker.service(obj)
    for obj in bad_slices:
        tracker.endpoint_slice(obj)
    fake = FakeIptables(family)
    ctx = CONTEXT if family is Family.IPV4 else CONTEXT.__class__(family=family, node=HERE)
    for change in plan_full(tracker.take().desired, ctx, fake.content()).changes:
        fake.load_change(change)
    applied = AppliedState()
    applied.commit(plan(tracker.current(), None, ctx, applied))
    assert any(name.service.namespace == "safe" for name in applied.ports) is (family is Family.IPV4)
    for obj in [*bad_services]:
        tracker.service(obj, gone=True)
    for obj in [*bad_slices]:
        tracker.endpoint_slice(obj, gone=True)
    tracker.take()
    if family is Family.IPV4:
        assert flow(fake, POD, "172.30.200.1", 80) == "10.180.200.1:80"


@given(junk)
def test_any_node(obj: Any) -> None:
    if obj is None or isinstance(obj, dict):
        facts = parse_node(obj, HERE)
        assert facts.name == HERE and facts.exists is (obj is not None)
        assert [parse_ip(address) for address in facts.ips] == list(facts.ips), "only addresses, in canonical text"
        assert [str(parse_cidr(cidr)) for cidr in facts.pod_cidrs] == list(facts.pod_cidrs)
