"""Services and EndpointSlices are collected, and only real changes are reported."""

from __future__ import annotations

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.model import Endpoint, NamespacedName, ServicePortName
from proxy.plan.slices import SERVICE_NAME
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint, endpoint_slice, service
from tests.unit.proxy.build import HERE


def tracker(family: Family = Family.IPV4) -> Tracker:
    return Tracker(family, HERE, 1_000_000.0)


def names(changed: frozenset[object]) -> list[str]:
    return sorted(str(name) for name in changed)


def endpoints_of(one: Tracker) -> dict[str, list[str]]:
    return {str(name): [str(e) for e in found] for name, found in one.current().endpoints.items()}


def test_a_service_comes_changes_and_goes() -> None:
    one = tracker()
    one.service(service("a", "172.30.0.1"))
    assert names(one.take().ports) == ["ns/a:p80"]
    one.service(service("a", "172.30.0.1"))
    assert not one.pending
    one.service(service("a", "172.30.0.1", ports=[{"name": "p81", "port": 81}]))
    taken = one.take()
    assert names(taken.ports) == ["ns/a:p80", "ns/a:p81"]
    assert names(frozenset(taken.desired.ports)) == ["ns/a:p81"]
    one.service(service("a", "172.30.0.1"), gone=True)
    assert one.take().desired.ports == {}


def test_the_cluster_ip_of_a_service_is_no_external_ip_of_another() -> None:
    """It took over cluster DNS: rules are in the order of names, and whoever comes first has the address."""
    one = tracker()

    def outer() -> dict[str, tuple[str, ...]]:
        ports = one.take().desired.ports
        return {str(name): (*port.external_ips, *port.load_balancer_ips) for name, port in ports.items()}

    balanced = {"loadBalancer": {"ingress": [{"ip": "172.30.0.10"}, {"ip": "192.0.2.2"}]}}
    one.service(service("a", "172.30.0.1", externalIPs=["172.30.0.10", "192.0.2.1"]) | {"status": balanced})
    assert outer() == {"ns/a:p80": ("172.30.0.10", "192.0.2.1", "172.30.0.10", "192.0.2.2")}
    one.service(service("dns", "172.30.0.10"))
    taken = one.take()
    assert names(taken.ports) == ["ns/a:p80", "ns/dns:p80"]
    assert [found.obj for found in taken.problems] == ["Service ns/a"]
    assert outer() == {"ns/a:p80": ("192.0.2.1", "192.0.2.2"), "ns/dns:p80": ()}
    one.service(service("b", "172.30.0.2", externalIPs=["172.30.0.10"]))
    assert outer()["ns/b:p80"] == ()
    one.service(service("dns", "172.30.0.10"), gone=True)
    assert names(one.take().ports) == ["ns/a:p80", "ns/b:p80", "ns/dns:p80"]
    assert outer()["ns/b:p80"] == ("172.30.0.10",)
    for gone in ("a", "b"):
        one.service(service(gone, "172.30.0.1"), gone=True)
    assert outer() == {}
    assert not any(getattr(one._outer, name) for name in ("_asked", "_cluster_ips", "_by_address", "_namespaces"))
    assert not one._served and not one.pending


def test_a_service_that_becomes_an_external_name_is_gone() -> None:
    one = tracker()
    one.service(service("a", "172.30.0.1"))
    one.take()
    one.service(service("a", "", type="ExternalName"))
    assert one.take().desired.ports == {}


def test_changes_of_annotations_are_no_changes() -> None:
    one = tracker()
    obj = endpoint_slice("a", ["10.1.0.1"])
    one.endpoint_slice(obj)
    one.take()
    one.endpoint_slice({**obj, "metadata": {**obj["metadata"], "annotations": {"x": "y"}, "resourceVersion": "7"}})
    assert not one.pending


def test_slices_are_merged_and_sorted() -> None:
    one = tracker()
    one.endpoint_slice(endpoint_slice("a", ["10.1.0.2", "10.1.0.1"], suffix="x"))
    one.endpoint_slice(endpoint_slice("a", ["10.1.0.3", "10.1.0.1"], suffix="y"))
    one.take()
    assert endpoints_of(one) == {"ns/a:p80": ["10.1.0.1:80", "10.1.0.2:80", "10.1.0.3:80"]}
    one.endpoint_slice(endpoint_slice("a", [], suffix="x"), gone=True)
    one.take()
    assert endpoints_of(one) == {"ns/a:p80": ["10.1.0.1:80", "10.1.0.3:80"]}
    one.endpoint_slice(endpoint_slice("a", [], suffix="y"), gone=True)
    taken = one.take()
    assert (endpoints_of(one), names(taken.ports)) == ({}, ["ns/a:p80"])


def test_a_slice_counts_for_one_service_whatever_its_label_has_been() -> None:
    """Whoever may write one EndpointSlice could leave its endpoints behind at ever more names."""
    one = tracker()
    obj = endpoint_slice("a", ["10.1.0.1"])

    def labelled(service: str) -> Json:
        labels = {SERVICE_NAME: service} if service else {}
        return {**obj, "metadata": {**obj["metadata"], "labels": labels}}

    one.endpoint_slice(obj)
    one.take()
    one.endpoint_slice(labelled("b"))
    taken = one.take()
    assert endpoints_of(one) == {"ns/b:p80": ["10.1.0.1:80"]}
    assert names(taken.ports) == ["ns/a:p80", "ns/b:p80"]
    one.endpoint_slice(labelled(""))
    one.take()
    assert endpoints_of(one) == {}
    one.endpoint_slice(labelled("c"))
    one.take()
    one.endpoint_slice(labelled("d"), gone=True)
    one.take()
    assert endpoints_of(one) == {}
    assert not one._slices and not one._owners


def test_an_endpoint_that_moves_between_slices_is_never_missing() -> None:
    one = tracker()
    one.endpoint_slice(endpoint_slice("a", ["10.1.0.1"], suffix="x"))
    one.take()
    one.endpoint_slice(endpoint_slice("a", ["10.1.0.1"], suffix="y"))
    one.endpoint_slice(endpoint_slice("a", [], suffix="x"))
    assert names(one.take().ports) == []
    assert endpoints_of(one) == {"ns/a:p80": ["10.1.0.1:80"]}


def test_of_two_with_one_address_the_running_one_counts() -> None:
    old = endpoint("10.1.0.1", ready=False, serving=True, terminating=True)
    for order in ([old, endpoint("10.1.0.1")], [endpoint("10.1.0.1"), old]):
        one = tracker()
        one.endpoint_slice(endpoint_slice("a", order))
        (found,) = one.take().desired.endpoints.values()
        assert found == (Endpoint("10.1.0.1", 80),)


def test_conditions_that_are_not_given() -> None:
    one = tracker()
    one.endpoint_slice(endpoint_slice("a", [{"addresses": ["10.1.0.1"], "conditions": {}, "nodeName": HERE}]))
    (found,) = one.take().desired.endpoints.values()
    assert found == (Endpoint("10.1.0.1", 80, local=True, ready=True, serving=True, terminating=False),)


def test_only_the_own_family_and_slices_of_services_count() -> None:
    one = tracker()
    one.endpoint_slice(endpoint_slice("a", ["fd00::1"], address_type="IPv6"))
    one.endpoint_slice(endpoint_slice("a", ["x.example"], address_type="FQDN"))
    orphan = endpoint_slice("a", ["10.1.0.1"])
    del orphan["metadata"]["labels"]
    one.endpoint_slice(orphan)
    assert not one.pending
    six = tracker(Family.IPV6)
    six.endpoint_slice(endpoint_slice("a", ["fd00::1"], address_type="IPv6"))
    six.take()
    assert endpoints_of(six) == {"ns/a:p80": ["[fd00::1]:80"]}


def test_a_port_without_number_or_name_is_left_out() -> None:
    one = tracker()
    ports: list[Json] = [{"name": "ok", "port": 1}, {"name": "none"}, {"port": 2}, {"name": "big", "port": 70000}]
    problems = one.endpoint_slice(endpoint_slice("a", ["10.1.0.1"], ports=ports))
    one.take()
    assert (endpoints_of(one), len(problems)) == ({"ns/a:ok": ["10.1.0.1:1"]}, 3)


def test_trigger_times_are_taken_once_and_only_new_ones() -> None:
    one = tracker()
    note = "endpoints.kubernetes.io/last-change-trigger-time"

    def at(text: str, suffix: str) -> None:
        obj = endpoint_slice("a", ["10.1.0.1"], suffix=suffix)
        obj["metadata"]["annotations"] = {note: text}
        one.endpoint_slice(obj)

    at("1970-01-12T13:46:39Z", "before")  # one second before the tracker was made
    at("1970-01-12T13:46:41.5Z", "after")
    at("yesterday", "odd")
    assert one.take().trigger_times == (1_000_001.5,)
    assert one.take().trigger_times == ()


def test_changes_of_udp_ports_are_marked() -> None:
    one = tracker()
    one.endpoint_slice(endpoint_slice("a", ["10.1.0.1"]))
    assert not one.take().udp
    one.endpoint_slice(endpoint_slice("d", ["10.1.0.1"], ports=[{"name": "dns", "port": 53, "protocol": "UDP"}]))
    assert one.take().udp


def test_what_was_taken_does_not_change_any_more() -> None:
    one = tracker()
    one.service(service("a", "172.30.0.1"))
    before = one.take().desired
    one.service(service("b", "172.30.0.2"))
    one.take()
    assert names(frozenset(before.ports)) == ["ns/a:p80"]


def _many(name: str, address: str, endpoints: list[str], ports: int = 100) -> tuple[Json, Json]:
    listed = [{"name": f"p{one}", "port": one + 1, "protocol": "TCP"} for one in range(ports)]
    return service(name, address, ports=listed), endpoint_slice(name, endpoints, ports=listed)


def test_endpoints_of_many_ports_do_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five slices with 10,000 ports each that changed together: 8 s until the rules of another Service were written."""
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 500)
    one = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(5):
        many, part = _many(f"s{number}", f"172.30.0.{number + 1}", ["10.1.0.1"])
        one.service(many)
        one.endpoint_slice(part)
    one.service(service("other", "172.30.1.1"))
    assert len(one.take().desired.endpoints) == 500, "all of them at first"
    for number in range(5):
        one.endpoint_slice(_many(f"s{number}", "", ["10.1.0.2"])[1])
    one.endpoint_slice(endpoint_slice("other", ["10.1.0.9"]))
    taken = one.take(some=True)
    assert {name.service.name for name in taken.ports} == {"s0", "other", "s1"} and one.pending
    assert {each.ip for each in taken.desired.endpoints[port("s4")]} == {"10.1.0.1"}, "it keeps what it had"
    seen = [{name.service.name for name in one.take(some=True).ports} for _ in range(2)]
    assert seen == [{"s2", "s3"}, {"s4"}] and not one.pending


def test_a_large_service_is_not_kept_waiting_by_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 250)
    one = Tracker(Family.IPV4, HERE, 0.0)
    one.service(_many("large", "172.30.0.1", [], 300)[0])
    one.take()
    one.endpoint_slice(endpoint_slice("small", ["10.1.0.1"]))
    one.endpoint_slice(_many("large", "", ["10.1.0.1"], 300)[1])
    assert {name.service.name for name in one.take(some=True).ports} == {"small"}
    one.endpoint_slice(endpoint_slice("small", ["10.1.0.2"]))
    assert {name.service.name for name in one.take(some=True).ports} >= {"large"}, "it waits for longest"


def test_a_namespace_with_much_does_not_keep_another_one_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 50 Services with 10,000 pairs each one was taken at a time, and whoever had more than 100 waited for most."""
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 1000)
    one = Tracker(Family.IPV4, HERE, 0.0)
    addresses = [f"10.1.0.{last}" for last in range(1, 151)]
    for number in range(20):
        one.endpoint_slice(_many(f"large{number}", "", addresses[:12])[1])
        one.endpoint_slice(_many(f"middle{number}", "", addresses[:3], 40)[1])
    one.endpoint_slice(endpoint_slice("victim", addresses, namespace="other"))
    taken = {name.service.name for name in one.take(some=True).ports}
    assert taken == {"large0", "victim", "middle0", "middle1"}


def test_ports_of_many_endpoints_do_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 Services of 10,000 pairs each whose ports changed together: 14 s until another one's rules were written."""
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 500)
    one = Tracker(Family.IPV4, HERE, 0.0)
    listed = [{"name": f"p{each}", "port": each + 1001, "protocol": "TCP"} for each in range(100)]
    for number in range(5):
        many, part = _many(f"s{number}", f"172.30.0.{number + 1}", ["10.1.0.1", "10.1.0.2", "10.1.0.3"])
        one.service(many)
        one.endpoint_slice(part)
    one.take()
    for number in range(4):
        one.service(service(f"s{number}", f"172.30.0.{number + 1}", ports=listed))
    one.service(_many("s4", "172.30.0.5", [])[0], gone=True)
    one.service(service("other", "172.30.1.1"))
    assert one.pending_services == 6
    taken = one.take(some=True)
    assert {name.service.name for name in taken.ports} == {"s0", "other"} and one.pending
    assert taken.desired.ports[port("s0")].port == 1001 and taken.desired.ports[port("s1")].port == 1
    assert port("s4") in taken.desired.ports, "it is served until its turn"
    one.service(service("s1", "172.30.0.2", ports=listed[:50]))
    seen = [{name.service.name for name in one.take(some=True).ports} for _ in range(4)]
    assert seen == [{"s1"}, {"s2"}, {"s3"}, {"s4"}] and not one.pending
    assert len(one.current().ports) == 100 + 50 + 100 + 100 + 1


def test_a_service_and_its_endpoints_are_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its endpoints it would refuse its clients."""
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 500)
    one = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(3):
        one.service(_many(f"s{number}", f"172.30.0.{number + 1}", [])[0])
    for number in (2, 1, 0):
        one.endpoint_slice(_many(f"s{number}", "", [f"10.1.0.{last}" for last in range(9)])[1])
    while one.pending:
        taken = one.take(some=True).desired
        assert {name.service for name in taken.ports} == {name.service for name in taken.endpoints}


def test_endpoints_that_go_count_as_those_that_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 Services that lost 10,000 pairs each were taken at once: the rules of another were written after 2.3 s."""
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 500)
    one = Tracker(Family.IPV4, HERE, 0.0)
    parts = []
    for number in range(5):
        many, part = _many(f"s{number}", f"172.30.0.{number + 1}", ["10.1.0.1", "10.1.0.2", "10.1.0.3"])
        one.service(many)
        one.endpoint_slice(part)
        parts.append(part)
    one.take()
    for part in parts:
        one.endpoint_slice(part, gone=True)
    one.endpoint_slice(endpoint_slice("other", ["10.1.0.9"]))
    assert {name.service.name for name in one.take(some=True).ports} == {"s0", "other"} and one.pending


def test_a_cluster_ip_is_nobodys_external_ip_while_changes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was sent to a new Service went to whoever had guessed its address, and had many changes that waited."""
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 500)
    one = Tracker(Family.IPV4, HERE, 0.0)
    listed = [{"name": f"p{each}", "port": each + 1, "protocol": "TCP"} for each in range(100)]
    later = [{"name": f"p{each}", "port": each + 1001, "protocol": "TCP"} for each in range(100)]
    outer = ["172.30.0.10", "192.0.2.1"]
    for number in range(5):
        one.endpoint_slice(_many(f"s{number}", "", ["10.1.0.1", "10.1.0.2", "10.1.0.3"])[1])
        one.service(service(f"s{number}", f"172.30.0.{number + 1}", ports=listed, externalIPs=outer))
    one.take()
    for number in range(5):
        one.service(service(f"s{number}", f"172.30.0.{number + 1}", ports=later, externalIPs=outer))
    one.service(service("dns", "172.30.0.10"))
    taken = one.take(some=True)
    assert one.pending and taken.desired.ports[port("s4")].port == 1, "it keeps what it had"
    assert {found.external_ips for name, found in taken.desired.ports.items() if name.port != "p80"} == {("192.0.2.1",)}
    assert port("s4") in taken.ports


def test_a_service_that_waits_is_counted_before_it_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose room changed by others had all that it asked for by then, and was never counted."""
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 500)
    monkeypatch.setattr("proxy.plan.outer.MOST_PAIRS", 1000)
    monkeypatch.setattr("proxy.plan.outer.MOST_OF_NAMESPACE", 1500)
    monkeypatch.setattr("proxy.plan.outer._LEAST", 1)
    one = Tracker(Family.IPV4, HERE, 0.0)

    def asking(name: str, last: int, addresses: int) -> Json:
        outer = [f"192.0.{last}.{each}" for each in range(1, addresses + 1)]
        listed = [{"name": f"p{each}", "port": each + 1, "protocol": "TCP"} for each in range(100)]
        return service(name, f"172.30.0.{last}", ports=listed, externalIPs=outer)

    fresh = Tracker(Family.IPV4, HERE, 0.0)
    for number, later in enumerate((1, 5, 5, 40, 5)):
        for each, addresses in ((one, 5), (fresh, later)):
            each.endpoint_slice(_many(f"s{number}", "", ["10.1.0.1"])[1])
            each.service(asking(f"s{number}", number + 1, addresses))
    one.take()
    one.service(asking("s0", 1, 1))  # the first, which makes room for s3
    one.service(asking("s3", 4, 40))
    one.take(some=True)
    assert one.pending
    assert one.take(some=True).desired.ports == fresh.take().desired.ports


def test_very_many_small_services_are_not_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with up to 100 pairs never waited: 5,000 of them are half a million pairs, a minute for all others."""
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 500)
    one = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(50):
        one.endpoint_slice(_many(f"small{number:02}", "", ["10.1.0.1"])[1])
    victim = endpoint_slice("victim", [f"10.1.0.{last}" for last in range(1, 101)], namespace="other")
    one.endpoint_slice(victim)
    taken = {name.service.name for name in one.take(some=True).ports}
    assert "victim" in taken and len(taken) < 16 and one.pending
    rounds = 0
    while one.pending:
        one.take(some=True)
        rounds += 1
    assert rounds < 10


def port(name: str) -> ServicePortName:
    return ServicePortName(NamespacedName("ns", name), "p0", "TCP")
