"""Of very many changes some are taken, and nobody waits for all that somebody else changes."""

from __future__ import annotations

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.unit.proxy.build import HERE


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch) -> Tracker:
    monkeypatch.setattr("proxy.plan.tracker.MOST_AT_ONCE", 100)
    monkeypatch.setattr("proxy.plan.tracker._FEW", 1)
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
