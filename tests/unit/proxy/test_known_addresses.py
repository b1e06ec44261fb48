"""Addresses that the Services of a namespace ask for: kept within a bound, whether they are served or not."""

from __future__ import annotations

import tracemalloc

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan import outer
from proxy.plan.tracker import Tracker
from tests.builders.services import service
from tests.unit.proxy.build import HERE


def asking(name: str, number: int, count: int, namespace: str = "ns") -> Json:
    addresses = [f"20.{number}.{one >> 8}.{one & 255}" for one in range(count)]
    return service(name, f"172.30.0.{number}", namespace=namespace, externalIPs=addresses)


def known(tracker: Tracker) -> dict[str, int]:
    return {str(name.service): len(port.external_ips) for name, port in tracker.take().desired.ports.items()}


def test_those_of_a_namespace_have_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outer, "MOST_KNOWN", 1000)
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    assert not tracker.service(asking("a", 1, 900))
    (problem,) = tracker.service(asking("b", 2, 900))
    assert problem.obj == "Service ns/b" and "800 addresses are left out" in problem.message
    assert tracker.service(asking("c", 3, 900))
    assert not tracker.service(asking("d", 4, 4)) and not tracker.service(asking("e", 5, 900, "else"))
    assert known(tracker) == {"ns/a": 900, "ns/b": 100, "ns/c": 4, "ns/d": 4, "else/e": 900}
    assert not tracker.service(asking("a", 1, 100)), "of its own it may have as many again"
    assert not tracker.service(asking("b", 2, 850))
    assert known(tracker)["ns/b"] == 850
    for name in "abcd":
        tracker.service(service(name), gone=True)
    tracker.service(service("e", namespace="else"), gone=True)
    assert known(tracker) == {} and not tracker._outer._known and not tracker._outer._by_address


def test_an_address_that_comes_to_be_a_cluster_ip_is_taken_from_each_that_asks_for_it() -> None:
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for name, number in (("a", 1), ("b", 2), ("c", 3)):
        tracker.service(service(name, f"172.30.0.{number}", externalIPs=["172.30.0.9"]))
    assert known(tracker) == {"ns/a": 1, "ns/b": 1, "ns/c": 1}
    tracker.service(service("b"), gone=True)
    tracker.service(service("dns", "172.30.0.9"))
    assert known(tracker) == {"ns/a": 0, "ns/c": 0, "ns/dns": 0}
    tracker.service(service("c"), gone=True)
    tracker.service(service("dns"), gone=True)
    assert known(tracker) == {"ns/a": 1}
    tracker.service(service("a"), gone=True)
    assert not tracker._outer._by_address


def test_what_the_addresses_of_large_services_take() -> None:
    """28 MB of every proxy for each of 1.1 MB, without any bound."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    tracemalloc.start()
    for number in range(1, 6):
        tracker.service(asking(f"s{number}", number, 60_000))
        tracker.take()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 40 << 20, f"{size >> 20} MiB"
