"""Endpoints of all Services of a namespace: bounded together, and nobody else has fewer."""

from __future__ import annotations

import time
import tracemalloc

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.model import NamespacedName
from proxy.plan.endpoint_shares import MOST_OF_NAMESPACE, EndpointShares
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.unit.proxy.build import HERE

PORTS = [{"name": f"p{number}", "port": number, "protocol": "TCP"} for number in range(1, 101)]
OF_SERVICE = 400_000


def slices_of(name: str, number: int, count: int = 4, endpoints: int = 1000, namespace: str = "ns") -> list[Json]:
    """So many slices with a hundred ports each."""
    return [
        endpoint_slice(
            name,
            [f"10.{number}.{part << 2 | one >> 8}.{one & 255}" for one in range(endpoints)],
            namespace=namespace,
            ports=PORTS,
            suffix=str(part),
        )
        for part in range(count)
    ]


def served(tracker: Tracker) -> dict[str, int]:
    """Pairs by Service."""
    found: dict[str, int] = {}
    for name, endpoints in tracker.take().desired.endpoints.items():
        found[name.service.name] = found.get(name.service.name, 0) + len(endpoints)
    return found


def test_the_endpoints_of_a_namespace_have_a_bound_together() -> None:
    """Each within the bound of a Service took 150 MB of every proxy, and a namespace may have many Services."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    tracker.service(service("huge0", "172.30.0.1", ports=PORTS))
    every = [(f"huge{number}", number) for number in range(3)]
    for name, number in every:
        for one in slices_of(name, number):
            tracker.endpoint_slice(one)
    tracker.endpoint_slice(endpoint_slice("small", ["10.9.0.1", "10.9.0.2"]))
    for one in slices_of("other", 8, namespace="else"):
        tracker.endpoint_slice(one)
    taken = tracker.take()
    said = [one for one in taken.problems if one.obj == "Namespace ns"]
    assert len(said) == 1 and "huge1, huge2" in said[0].message
    tracker.endpoint_slice(endpoint_slice("small", ["10.9.0.1"]))
    found = served(tracker)
    assert found["small"] == 1 and found["other"] == OF_SERVICE, "nobody else has fewer"
    assert found["huge0"] == OF_SERVICE
    assert sum(pairs for name, pairs in found.items() if name != "other") <= MOST_OF_NAMESPACE
    for one in slices_of("huge0", 0):
        tracker.endpoint_slice(one, gone=True)
    found = served(tracker)
    assert "huge0" not in found and found["huge1"] == OF_SERVICE, "those that were left out come back"
    for name, number in every[1:]:
        for one in slices_of(name, number):
            tracker.endpoint_slice(one, gone=True)
    assert served(tracker) == {"small": 1, "other": OF_SERVICE}
    assert tracker._shares._namespaces["ns"].total == 1


def test_what_is_left_out_costs_as_much_as_its_object() -> None:
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(2):
        for one in slices_of(f"huge{number}", number):
            tracker.endpoint_slice(one)
    tracker.take()
    made = [one for number in range(2, 6) for one in slices_of(f"huge{number}", number)]
    tracemalloc.start()
    for one in made:
        tracker.endpoint_slice(one)
    tracker.take()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 20 << 20, f"{size >> 20} MiB for 16 slices of 35 KB"


def test_a_namespace_that_has_too_many_is_shared_out_in_time() -> None:
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(1000):
        tracker.endpoint_slice(endpoint_slice(f"s{number:04}", [f"10.0.{number >> 8}.{number & 255}"], ports=PORTS * 6))
    tracker.take()
    began = time.process_time()
    for number in range(20):
        tracker.endpoint_slice(endpoint_slice("s0001", [f"10.1.0.{number}"], ports=PORTS * 6))
        tracker.take()
    assert time.process_time() - began < 2.0


def test_a_slice_that_is_left_out_takes_little_more_than_its_object() -> None:
    """Two empty sets of each endpoint were two thirds of 0.6 MB for a slice of 35 KB, of which a namespace may have any
    number."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(2):
        for one in slices_of(f"huge{number}", number):
            tracker.endpoint_slice(one)
    tracker.take()
    made = slices_of("huge9", 9)
    tracemalloc.start()
    for one in made:
        tracker.endpoint_slice(one)
    tracker.take()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < len(made) * 200_000, f"{size // len(made)} bytes for a slice"


def test_what_a_service_may_not_have_in_any_case_takes_nothing_from_the_others() -> None:
    """The first of eight that have too many had all of a namespace's room, though it was given a seventh of it."""
    shares = EndpointShares(150_000, 20_000)
    services = [NamespacedName("ns", f"s{number}") for number in range(8)]
    for one in services:
        shares.add(one, 200_000)
    shares.bound(["ns"])
    assert [shares.room(one) for one in services] == [20_000] * 7 + [10_000]
