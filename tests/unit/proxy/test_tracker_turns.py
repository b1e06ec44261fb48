"""Of very many changes some are taken, and nobody waits for all that somebody else changes."""

from __future__ import annotations

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.unit.proxy.build import HERE

NODE_PORT: Json = {"name": "n", "port": 7000, "protocol": "TCP", "nodePort": 30080}


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    monkeypatch.setattr("proxy.plan.turns.MOST_AT_ONCE", 100)
    monkeypatch.setattr("proxy.plan.turns._FEW", 1)
    return Tracker(Family.IPV4, HERE, 0.0)


def pods(number: int, network: int = 1) -> list[str]:
    return [f"10.1.{network}.{last}" for last in range(1, number + 1)]


def slice_of(namespace: str, name: str, number: int, network: int = 1) -> Json:
    return endpoint_slice(name, pods(number, network), namespace=namespace)


def taken(tracker: Tracker) -> set[str]:
    return {str(name.service) for name in tracker.take(some=True).ports}


def test_a_large_change_does_not_wait_for_all_that_another_namespace_changed_before(tracker: Tracker) -> None:
    """Services that change again and again took all the room; of those before it one was taken at a time: 2,000 syncs
    with 20,000 pairs each."""
    for number in range(50):
        tracker.endpoint_slice(slice_of("attack", f"large{number}", 60))
    tracker.endpoint_slice(slice_of("victim", "web", 90))
    for turn in range(2):
        for number in range(20):
            tracker.endpoint_slice(slice_of("attack", f"small{number}", 20, turn))
        if "victim/web" in taken(tracker):
            break
    else:
        raise AssertionError("it waits")


def test_a_namespace_that_changes_again_has_its_turn_after_those_that_wait(tracker: Tracker) -> None:
    for number in range(20):
        tracker.endpoint_slice(slice_of(f"a{number:02}", "web", 4))
    tracker.endpoint_slice(slice_of("victim", "web", 90))
    for turn in range(2):
        if "victim/web" in taken(tracker):
            break
        for number in range(20):
            tracker.endpoint_slice(slice_of(f"a{number:02}", "web", 4, 2 + turn))
    else:
        raise AssertionError("it waits")


def test_a_services_ports_do_not_wait_for_endpoints_that_change_again_and_again(tracker: Tracker) -> None:
    many = [{"name": f"p{one}", "port": one + 1} for one in range(90)]
    tracker.service(service("ports", "172.30.0.1", ports=many))
    tracker.endpoint_slice(slice_of("ns", "web", 90))
    assert taken(tracker) == {"ns/ports", "ns/web"}


def test_endpoints_of_a_service_with_many_addresses_count_at_each(tracker: Tracker) -> None:
    """20 Services with 100 external IPs and 100 endpoints each: 400,000 elements in one sync, counted as 4,000."""
    for number in range(4):
        addresses = [f"192.0.{number}.{last}" for last in range(1, 10)]
        tracker.service(service(f"s{number}", f"172.30.0.{number + 1}", externalIPs=addresses))
        tracker.endpoint_slice(slice_of("ns", f"s{number}", 3))
    tracker.take()
    for number in range(4):
        tracker.endpoint_slice(slice_of("ns", f"s{number}", 3, 2))
    tracker.endpoint_slice(slice_of("other", "web", 3))
    assert taken(tracker) == {"ns/s0", "other/web"}


@pytest.mark.parametrize(
    "spec", [{"cluster_ip": "172.30.0.9"}, {"cluster_ip": "172.30.0.8", "type": "NodePort", "ports": [NODE_PORT]}]
)
def test_who_gets_the_address_of_a_service_that_is_gone_has_it_soon(tracker: Tracker, spec: Json) -> None:
    """The one that is gone kept it, and what was sent there, until all that its namespace had changed before was
    taken."""
    many = [NODE_PORT, *[{"name": f"p{one}", "port": one + 1, "protocol": "TCP"} for one in range(90)]]
    old = service("old", "172.30.0.9", namespace="attack", type="NodePort", ports=many)
    tracker.service(old)
    tracker.take()
    for number in range(50):
        tracker.endpoint_slice(slice_of("attack", f"large{number}", 90))
        tracker.service(service(f"ports{number}", f"172.30.1.{number}", namespace="attack", ports=many[1:]))
    tracker.service(old, gone=True)
    tracker.service(service("new", namespace="victim", **spec))
    for _ in range(2):
        served = {name.service.name for name in tracker.take(some=True).desired.ports}
        assert ("new" in served) is ("old" not in served)
    assert "new" in served and tracker.pending


def test_one_service_does_not_have_many_others_taken_at_once(tracker: Tracker) -> None:
    many = [{"name": f"p{one}", "port": one + 1, "protocol": "TCP"} for one in range(90)]
    old = [
        service(f"s{each}", f"172.30.0.{each}", type="NodePort", ports=[*many, {**NODE_PORT, "nodePort": 30000 + each}])
        for each in range(1, 6)
    ]
    for one in old:
        tracker.service(one)
    tracker.take()
    for one in old:
        tracker.service(one, gone=True)
    ports = [{"name": f"q{each}", "port": each, "nodePort": 30000 + each} for each in range(1, 6)]
    tracker.service(service("new", "172.30.0.9", type="NodePort", ports=ports))
    turns = []
    while tracker.pending:
        turns.append(taken(tracker))
    assert len(turns) == 5 and "ns/new" in turns[-1] and all(len(one) <= 2 for one in turns), turns
