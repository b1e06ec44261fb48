"""What a namespace may have where the rules of all Services are in chains, which are written as a whole."""

from __future__ import annotations

from collections import Counter

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan.iptables.sync import AppliedState, plan_partial
from proxy.plan.limits import OF_MODE
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.unit.proxy.build import CONTEXT, HERE

LIMITS = OF_MODE["iptables"]


@pytest.fixture
def tracker() -> Tracker:
    return Tracker(Family.IPV4, HERE, 0.0, LIMITS)


def numbered(count: int) -> list[Json]:
    return [{"name": f"p{one}", "port": 1000 + one, "protocol": "TCP"} for one in range(count)]


def slices(name: str, endpoints: int, ports: int, network: int = 1) -> Json:
    addresses = [f"10.{network}.{one >> 8}.{one & 255}" for one in range(1, endpoints + 1)]
    return endpoint_slice(name, addresses, namespace="evil", ports=numbered(ports))


def shared_rules(tracker: Tracker) -> Counter[str]:
    """By chain that all Services share."""
    found: Counter[str] = Counter()
    changes = tracker.take()
    plan = plan_partial(changes.desired, changes.ports, CONTEXT, AppliedState())
    for (_, chain), rules in plan.applied.tops.items():
        found[chain] += len(rules)
    return found


@pytest.mark.parametrize("endpoints", [0, 1])
def test_external_ips_are_not_multiplied_by_ports_in_the_chains_of_all(tracker: Tracker, endpoints: int) -> None:
    """Two Services of 30 KB were 200,000 rules: a new Service of anybody took 6.5 s instead of 0.02, and any new
    connection of anybody 3.4 ms instead of 0.05."""
    for number in range(2):
        outer = [f"198.{18 + number}.{one >> 8}.{one & 255}" for one in range(316)]
        tracker.service(
            service(f"e{number}", f"172.30.9.{number}", namespace="evil", ports=numbered(316), externalIPs=outer)
        )
        tracker.endpoint_slice(slices(f"e{number}", endpoints, 316))
    tracker.service(service("web", "172.30.1.1", externalIPs=["203.0.113.77"]))
    tracker.endpoint_slice(endpoint_slice("web", ["10.9.0.1"]))
    found = shared_rules(tracker)
    assert max(found.values()) <= LIMITS.address_rules + 700  # type: ignore[operator]
    assert "203.0.113.77" in str(tracker.take().desired.ports), "nobody else has fewer"


def test_a_service_with_few_addresses_keeps_them_beside_one_with_many(tracker: Tracker) -> None:
    outer = [f"198.18.{one >> 8}.{one & 255}" for one in range(300)]
    tracker.service(service("many", "172.30.9.1", ports=numbered(300), externalIPs=outer))
    tracker.service(service("few", "172.30.9.2", externalIPs=["203.0.113.1", "203.0.113.2"]))
    tracker.endpoint_slice(endpoint_slice("few", [f"10.1.{one >> 8}.{one & 255}" for one in range(1, 9000)]))
    found = {name.service.name: port.external_ips for name, port in tracker.take().desired.ports.items()}
    assert len(found["few"]) == 2, "endpoints are no rules of the chains of all"
    assert 0 < len(found["many"]) < 40


def test_the_ports_of_a_namespace_are_not_so_many(tracker: Tracker) -> None:
    for number in range(5):
        tracker.service(service(f"e{number}", f"172.30.9.{number}", namespace="evil", ports=numbered(20_000)))
    assert max(shared_rules(tracker).values()) <= 20_100


def test_the_endpoints_of_a_service_are_taken_in_parts(tracker: Tracker) -> None:
    """One EndpointSlice of 1,000 endpoints and a hundred ports: a sync took 65 s whenever it changed, and nobody's
    rules were written meanwhile."""
    tracker.service(service("e", "172.30.9.1", namespace="evil", ports=numbered(100)))
    tracker.endpoint_slice(slices("e", 100, 100))
    tracker.take()
    before = tracker.take().desired.endpoints
    for network in (2, 3):
        tracker.endpoint_slice(slices("e", 100, 100, network))
        tracker.service(service(f"v{network}", "172.30.1.1", namespace="victim"))
        tracker.endpoint_slice(endpoint_slice(f"v{network}", ["10.9.0.1"], namespace="victim"))
        changes = tracker.take(some=True)
        ours = [name for name in changes.ports if name.service.namespace == "evil"]
        assert sum(200 for _ in ours) <= LIMITS.at_once and ours
        assert any(name.service.namespace == "victim" for name in changes.ports)
        assert tracker.pending
    changed: set[object] = {name for name, found in changes.desired.endpoints.items() if before.get(name) != found}
    assert len(changed) > 1 + LIMITS.at_once // 200, "the second part is another one"
    for _ in range(10):
        tracker.take(some=True)
    assert not tracker.pending
    last = tracker.take().desired.endpoints
    assert {one.ip.split(".")[1] for name, found in last.items() if name.service.name == "e" for one in found} == {"3"}


def test_nothing_is_kept_of_parts_that_a_full_sync_has_taken(tracker: Tracker) -> None:
    tracker.service(service("e", "172.30.9.1", namespace="evil", ports=numbered(100)))
    tracker.endpoint_slice(slices("e", 100, 100))
    tracker.take(some=True)
    assert tracker.pending
    tracker.endpoint_slice(slices("e", 100, 100), gone=True)
    tracker.take()
    assert not tracker.pending and not tracker._parts._last


def test_the_endpoints_of_a_namespace_have_fewer_chains(tracker: Tracker) -> None:
    """Each write reads the names of all chains that are there: 0.4 s for 100,000."""
    for number in range(9):
        name = f"e{number}"
        tracker.service(service(name, f"172.30.9.{number}", namespace="evil", ports=numbered(19)))
        tracker.endpoint_slice(slices(name, 1000, 19, number))
    tracker.endpoint_slice(endpoint_slice("web", ["10.9.0.1"]))
    changes = tracker.take()
    assert {name.service.name for name in changes.desired.endpoints} == {"web", *[f"e{one}" for one in range(7)]}
    assert "more than 150000 together" in str(changes.problems)


def test_a_service_has_no_more_pairs_than_are_written_at_once(tracker: Tracker) -> None:
    """When it is made or deleted all of its rules come and go together."""
    tracker.endpoint_slice(slices("e", 1000, 100))
    tracker.endpoint_slice(slices("f", 1000, 15))
    changes = tracker.take()
    assert {name.service.name for name in changes.desired.endpoints} == {"f"}
    assert "is left out" in str(changes.problems)
    assert 3 * 5000 <= 20_000, "three ports on each node of the largest cluster"
