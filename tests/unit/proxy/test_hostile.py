"""What a user who may write Services and EndpointSlices, or a broken controller, must not get out of the proxy."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodelib.errors import NodewrightError
from nodelib.firewall.iptables import RestoreError
from nodelib.firewall.objects import Change, Family
from nodelib.firewall.render import render
from nodelib.json_values import Json
from proxy.backends.context import NodeContext
from proxy.backends.iptables import IptablesBackend
from proxy.backends.quarantine import Quarantine
from proxy.model import NodeFacts
from proxy.plan.nftables.sync import AppliedState, plan
from proxy.plan.node import parse_node, with_node
from proxy.plan.outer import MOST_OF_NAMESPACE, MOST_PAIRS
from proxy.plan.services import parse_service
from proxy.plan.slices import MOST_ENDPOINTS, parse_slice
from proxy.plan.tracker import Tracker
from proxy.watches import update_ranges
from tests.builders.services import PORT, endpoint_slice, node, service
from tests.fakes.fake_iptables import FakeIptables
from tests.unit.proxy.build import CONTEXT, HERE, POD, desired, flow, plan_full

SPECIAL_FOUR = ["0.0.0.0", "0.1.2.3", "127.0.0.1", "127.9.9.9", "169.254.169.254", "224.0.0.1", "239.1.1.1"]
SPECIAL_FOUR += ["255.255.255.255", "::ffff:127.0.0.1", "127.0.0.01"]
SPECIAL_SIX = ["::", "::1", "fe80::1", "ff02::1", "ff05::2", "fe80::1%eth0"]
SPECIAL = [(one, "IPv4") for one in SPECIAL_FOUR] + [(one, "IPv6") for one in SPECIAL_SIX]


@pytest.mark.parametrize(("address", "kind"), SPECIAL)
def test_no_endpoint_is_an_address_that_each_node_has_itself(address: str, kind: str) -> None:
    """The API server refuses most of them (ValidateNonSpecialIP); upstream's proxy relies on that."""
    good = "10.1.0.1" if kind == "IPv4" else "fd00::1"
    parsed, problems = parse_slice(endpoint_slice("web", [address, good], address_type=kind), HERE)
    assert parsed is not None
    assert [one.ip for _, many in parsed.unfold() for one in many] == [good]
    assert len(problems) == 1
    assert address in problems[0].message


@pytest.mark.parametrize(("address", "kind"), SPECIAL)
@pytest.mark.parametrize("field", ["externalIPs", "load balancer"])
def test_no_service_takes_over_an_address_that_each_node_has_itself(field: str, address: str, kind: str) -> None:
    """Anybody who may write a Service's status could take 127.0.0.1:10248 or the metadata service from every node."""
    family = Family(kind)
    ip, good = ("172.30.0.1", "203.0.113.5") if kind == "IPv4" else ("fd30::1", "fd99::5")
    given_ips: dict[str, Any] = {"externalIPs": [address, good]} if field == "externalIPs" else {"lb": [address, good]}
    made = service("web", ip, type="LoadBalancer", ipFamilies=[kind], **given_ips)
    ports, problems = parse_service(made, family)
    (port,) = ports.values()
    assert (port.external_ips or port.load_balancer_ips) == (good,)
    assert len(problems) == 1


def test_no_service_has_a_cluster_ip_that_each_node_has_itself() -> None:
    ports, problems = parse_service(service("web", "127.0.0.1"), Family.IPV4)
    assert not ports
    assert "loopback" in problems[0].message


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"name": "n" * 300}, id="service"),
        pytest.param({"namespace": "n" * 300}, id="namespace"),
        pytest.param({"ports": [{"name": "n" * 300, "port": 80}]}, id="port"),
    ],
)
def test_a_name_that_no_comment_can_hold_is_left_out(change: Json) -> None:
    """xt_comment holds 255 bytes: the kernel would refuse the transaction with everybody's rules in it."""
    fields: dict[str, Any] = {"name": "web", "cluster_ip": "172.30.0.1"} | change
    ports, problems = parse_service(service(**fields), Family.IPV4)
    assert not ports
    assert len(problems) == 1
    assert len(problems[0].message) + len(problems[0].obj) < 1000


def test_junk_is_told_in_a_line_and_not_in_megabytes() -> None:
    junk = "x" * 1_000_000
    made = service("web", "172.30.0.1", type="LoadBalancer", externalIPs=[junk] * 50, loadBalancerSourceRanges=[junk])
    problems = parse_service(made, Family.IPV4)[1]
    problems += parse_slice(endpoint_slice("web", [junk] * 1000, ports=[{"name": junk, "port": 0}]), HERE)[1]
    assert sum(len(one.message) + len(one.obj) for one in problems) < 10_000


@pytest.mark.parametrize(
    ("seconds", "kept"),
    [(0, 10800), (-1, 10800), (86400, 86400), (86401, 10800), (1 << 70, 10800), ("9", 10800), (True, 10800)],
)
def test_affinity_out_of_range(seconds: Any, kept: int) -> None:
    config = {"clientIP": {"timeoutSeconds": seconds}}
    made = service("web", "172.30.0.1", sessionAffinity="ClientIP", sessionAffinityConfig=config)
    assert [port.affinity_seconds for port in parse_service(made, Family.IPV4)[0].values()] == [kept]


def test_a_node_whose_pods_are_everybody_knows_no_local_traffic() -> None:
    facts = parse_node(node(HERE, cidr="0.0.0.0/0"), HERE)
    assert with_node(CONTEXT, facts, detect_node_cidr=True).detector.cidr == ""


SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(SPECIAL_FOUR + SPECIAL_SIX),
)
JUNK = st.recursive(
    SCALAR, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3))
)


def _damaged(sound: Json, paths: list[tuple[list[int], Any]]) -> Json:
    """`sound` with some of its values replaced: each path says which value to follow at each step."""
    made = copy.deepcopy(sound)
    for path, value in paths:
        at: Any = made
        for step in path:
            keys: list[Any] = (
                sorted(at) if isinstance(at, dict) else list(range(len(at))) if isinstance(at, list) else []
            )
            if not keys:
                break
            key = keys[step % len(keys)]
            if isinstance(at[key], dict | list) and step % 3 and at[key]:
                at = at[key]
                continue
            at[key] = value
            break
    return made


RICH = service(
    "web",
    "172.30.0.1",
    type="LoadBalancer",
    lb=["1.2.3.4"],
    externalIPs=["192.168.99.1"],
    loadBalancerSourceRanges=["203.0.113.0/25"],
    ipFamilies=["IPv4"],
    clusterIPs=["172.30.0.1"],
    sessionAffinity="ClientIP",
    sessionAffinityConfig={"clientIP": {"timeoutSeconds": 10}},
    externalTrafficPolicy="Local",
    healthCheckNodePort=30000,
    trafficDistribution="PreferClose",
    ports=[{"name": "p80", "port": 80, "nodePort": 30080, "protocol": "TCP"}],
)
SLICE = endpoint_slice("web", ["10.1.0.1", "10.1.0.2"])
SLICE["endpoints"][0] |= {"hints": {"forZones": [{"name": "a"}]}, "nodeName": HERE}
SLICE["metadata"]["annotations"] = {"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"}
NODE = node(HERE, cidr="10.244.0.0/24", address="10.89.0.11")
DAMAGE = st.lists(st.tuples(st.lists(st.integers(0, 50), min_size=1, max_size=6), JUNK), max_size=4)


@given(DAMAGE, DAMAGE, DAMAGE)
def test_damaged_objects_never_stop_the_others(one: Any, two: Any, three: Any) -> None:
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    tracker.service(service("good", "172.30.0.9"))
    tracker.endpoint_slice(endpoint_slice("good", ["10.1.0.9"]))
    tracker.service(_damaged(RICH, one))
    tracker.endpoint_slice(_damaged(SLICE, two))
    facts = parse_node(_damaged(NODE, three), HERE)
    ctx = with_node(CONTEXT, facts, detect_node_cidr=True)
    taken = tracker.take().desired
    fake = FakeIptables()
    for change in plan_full(taken, ctx, fake.content()).changes:
        fake.load_change(change)
    plan(taken, None, ctx, AppliedState())
    assert flow(fake, POD, "172.30.0.9", 80).startswith("10.1.0.9:80")


@given(JUNK)
def test_what_is_no_node_or_range_at_all(junk: Any) -> None:
    assert isinstance(parse_node({"metadata": junk, "spec": junk, "status": junk}, HERE), NodeFacts)
    assert isinstance(parse_node({"spec": {"podCIDRs": junk}, "status": {"addresses": junk}}, HERE), NodeFacts)
    update_ranges({}, "ADDED", {"metadata": {"name": "a"}, "spec": junk})
    update_ranges({}, "ADDED", {"metadata": {"name": "a"}, "spec": {"cidrs": junk}})


def test_a_service_has_no_endless_number_of_endpoints() -> None:
    """Anybody who may write EndpointSlices could otherwise fill the rules of every node for minutes."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    tracker.service(service("web", "172.30.0.1"))
    for number in range(0, 2 * MOST_ENDPOINTS, 1000):
        many = [f"10.{one >> 16}.{one >> 8 & 255}.{one & 255}" for one in range(number, number + 1000)]
        tracker.endpoint_slice(endpoint_slice("web", many, suffix=str(number)))
    taken = tracker.take()
    assert taken.desired.endpoint_count == MOST_ENDPOINTS
    assert len(taken.problems) == 1
    assert "ns/web" in taken.problems[0].obj


def test_a_slice_is_not_multiplied_without_end() -> None:
    """The API server accepts 1,000 endpoints with 20,000 ports: 20 million, gigabytes on every node."""
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 20_001)]
    parsed, problems = parse_slice(
        endpoint_slice("web", [f"10.1.{n >> 8}.{n & 255}" for n in range(1000)], ports=ports), ""
    )
    assert parsed is not None
    assert sum(len(many) for _, many in parsed.unfold()) == 100_000
    assert "19900 ports" in problems[-1].message


def test_the_slices_of_a_service_are_merged_up_to_a_number_of_pairs() -> None:
    """All of them are merged anew when one changes: a hundred large ones took the loop of every proxy for seconds."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 101)]
    for number in reversed(range(6)):
        many = [f"10.{number}.{one >> 8}.{one & 255}" for one in range(1000)]
        tracker.endpoint_slice(endpoint_slice("web", many, ports=ports, suffix=str(number)))
    taken = tracker.take()
    assert {one.ip.split(".")[1] for many in taken.desired.endpoints.values() for one in many} == {"0", "1", "2", "3"}
    assert [f"web-{left}" in problem.message for left, problem in zip("45", taken.problems, strict=True)] == [True] * 2


def test_external_addresses_are_not_multiplied_with_endpoints_without_end() -> None:
    """In nftables mode each pair is an element: an object of 300 KB with 50 endpoints made a million, of 400 MB."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    many = [f"20.{one >> 16}.{one >> 8 & 255}.{one & 255}" for one in range(20_000)]
    tracker.service(service("web", "172.30.0.1", externalIPs=many, ports=[PORT, PORT | {"name": "p81", "port": 81}]))

    def pairs() -> int:
        taken = tracker.take().desired
        return sum(len(port.external_ips) * len(taken.endpoints.get(name, ())) for name, port in taken.ports.items())

    both = [PORT, {"name": "p81", "port": 81, "protocol": "TCP"}]
    tracker.endpoint_slice(endpoint_slice("web", ["10.1.0.1"], ports=both))
    assert pairs() == 40_000
    tracker.endpoint_slice(endpoint_slice("web", [f"10.1.0.{one}" for one in range(100)], ports=both))
    (problem,) = tracker.take().problems
    assert problem.obj == "Service ns/web" and "19500 of 20000 addresses are left out" in problem.message
    tracker.endpoint_slice(endpoint_slice("web", [f"10.1.0.{one}" for one in range(99)], ports=both))
    assert 90_000 < pairs() <= MOST_PAIRS
    tracker.endpoint_slice(endpoint_slice("web", ["10.1.0.1"], ports=both))
    assert pairs() == 40_000, "those that were left out come back"
    tracker.service(service("web", "172.30.0.1"), gone=True)
    assert pairs() == 0 and not tracker.take().problems


def test_the_first_addresses_of_any_service_are_served() -> None:
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    ports = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 101)]
    for number in range(4):
        some = [f"10.{number}.{one >> 8}.{one & 255}" for one in range(1000)]
        tracker.endpoint_slice(endpoint_slice("web", some, ports=ports, suffix=str(number)))
    tracker.service(service("web", "172.30.0.1", type="LoadBalancer", lb=["192.0.2.1"], ports=ports))
    assert {port.load_balancer_ips for port in tracker.take().desired.ports.values()} == {("192.0.2.1",)}


def many_addresses(name: str, number: int, addresses: int, ports: int = 1) -> Json:
    """A Service with external IPs that no other has."""
    entries = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in range(1, ports + 1)]
    some = [f"20.{number}.{one >> 8}.{one & 255}" for one in range(addresses)]
    return service(name, f"172.30.{number}.1", ports=entries, externalIPs=some)


def test_ports_that_come_and_go_are_not_multiplied_by_those_who_ask_for_their_address() -> None:
    """A Service of 28 KB that asks for the cluster IP of another, with 1,000 ports, took 14 s, and a problem each."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    greedy = many_addresses("greedy", 0, 240, 400)
    greedy["spec"]["externalIPs"].append("172.30.9.1")
    tracker.service(greedy)
    tracker.take()
    other = many_addresses("other", 9, 0, 4000)
    began = time.process_time()
    for gone in (False, True):
        tracker.service(other, gone=gone)
        taken = tracker.take()
        assert len(taken.problems) == (0 if gone else 1)
        assert sum(len(port.external_ips) for port in taken.desired.ports.values()) == 400 * (241 if gone else 240)
    assert time.process_time() - began < 2.0


def test_the_services_of_a_namespace_have_a_bound_together() -> None:
    """Each of 30 KB had 100,000 pairs, and took 45 MB of the proxy of each node: a hundred of them took them all."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)

    def served() -> dict[str, int]:
        found: dict[str, int] = {}
        for name, port in tracker.take().desired.ports.items():
            found[name.service.name] = found.get(name.service.name, 0) + port.address_count
        return found

    for number in range(4):
        tracker.service(many_addresses(f"huge{number}", number, 300, 300))
    tracker.service(many_addresses("small", 8, 4, 2))
    tracker.service(service("other", "172.30.8.2", namespace="else", externalIPs=["192.0.2.1"]))
    taken = tracker._outer
    found = served()
    assert found["small"] == 8 and found["other"] == 1, "nobody else has fewer"
    assert found["huge0"] == found["huge1"] == 90_000
    assert 1200 < found["huge2"] < 90_000 and found["huge3"] == 1200, "the first four of each port"
    assert sum(found.values()) <= MOST_OF_NAMESPACE + 1201
    tracker.service(many_addresses("huge0", 0, 300, 300), gone=True)
    assert served()["huge3"] > 1200, "they come back"
    tracker.service(many_addresses("huge1", 1, 300, 300), gone=True)
    found = served()
    assert found["huge2"] == found["huge3"] == 90_000
    assert not taken._namespaces["ns"].rooms


class Picky(FakeIptables):
    """Refuses every input with an endpoint in 10.66.0.0/16, naming the first such line."""

    async def restore(self, change: Change) -> None:
        line = next((one for one in render(change).splitlines() if "10.66." in one), "")
        if line:
            raise RestoreError("exit status 1: no such extension", line=line, family=Family.IPV4)
        await super().restore(change)


async def test_many_refused_services_do_not_stop_the_others_for_ever() -> None:
    """One sync sets a limited number aside; the next ones go on from there instead of from the beginning."""
    objects = [service("good", "172.30.0.9"), endpoint_slice("good", ["10.1.0.9"])]
    for number in range(50):
        objects += [
            service(f"bad{number}", f"172.30.1.{number}"),
            endpoint_slice(f"bad{number}", [f"10.66.0.{number}"]),
        ]
    fake = Picky()
    backend = Quarantine(IptablesBackend(fake, NodeContext(CONTEXT)))
    world = desired(*objects)
    for _ in range(5):
        try:
            await backend.sync(world, None)
        except NodewrightError:
            continue
        break
    assert flow(fake, POD, "172.30.0.9", 80) == "10.1.0.9:80"
    assert "ns/bad" not in fake.dump()


@pytest.mark.parametrize("field", ["externalIPs", "load balancer", "ranges"])
def test_a_service_cannot_multiply_its_ports_by_its_addresses(field: str) -> None:
    """1.5 MB of both are 400 million rules: each proxy of the cluster would run out of memory."""
    many = [f"203.{number >> 8}.{number & 255}.1" for number in range(4000)]
    given_ips: dict[str, Any] = {
        "externalIPs": {"externalIPs": many},
        "load balancer": {"lb": many},
        "ranges": {"lb": many[:1], "loadBalancerSourceRanges": [f"{one}/32" for one in many]},
    }[field]
    entries = [{"name": f"p{number}", "port": number} for number in range(1, 4001)]
    ports, problems = parse_service(
        service("web", "172.30.0.1", type="LoadBalancer", ports=entries, **given_ips), Family.IPV4
    )
    per_port = [len(one.external_ips + one.load_balancer_ips + one.source_ranges) for one in ports.values()]
    assert 0 < sum(per_port) <= 100_000
    assert [one.port for one in ports.values()] == list(range(1, len(ports) + 1))
    assert "are left out" in problems[0].message
