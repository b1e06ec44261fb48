"""The tracker ends with the rules of the last objects, whatever happened before and however it was taken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.model import Desired, NamespacedName
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.unit.proxy.build import HERE

_BOUNDS = {
    "turns.MOST_AT_ONCE": 6,
    "turns._FEW": 1,
    "endpoint_shares.MOST_OF_NAMESPACE": 14,
    "port_shares.MOST_OF_NAMESPACE": 7,
    "port_shares.LEAST": 1,
    "outer.MOST_PAIRS": 8,
    "outer.MOST_OF_NAMESPACE": 12,
    "outer._LEAST": 1,
}
# Cluster IPs of some are external IPs of others.
_ADDRESSES = [f"172.30.0.{last}" for last in range(1, 4)] + [f"192.0.2.{last}" for last in range(1, 5)]
_PODS = [f"10.1.0.{last}" for last in range(1, 5)]
names, namespaces = st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["x", "y"])
ports = st.lists(st.integers(1, 4), max_size=4, unique=True)
events = st.one_of(
    st.tuples(
        st.just("service"),
        namespaces,
        names,
        st.integers(1, 3),
        ports,
        st.lists(st.sampled_from(_ADDRESSES), max_size=5, unique=True),
        st.integers(0, 1),
    ),
    st.tuples(
        st.just("slice"),
        namespaces,
        names,
        names,
        ports,
        st.lists(st.sampled_from(_PODS), max_size=4, unique=True),
        st.integers(0, 1),
    ),
    st.tuples(st.sampled_from(["gone service", "gone slice"]), namespaces, names),
    st.tuples(st.sampled_from(["some", "some", "all"])),
)


def _listed(numbers: list[int], generation: int) -> list[Json]:
    return [{"name": f"p{one}", "port": one + 100 * generation, "protocol": "TCP"} for one in numbers]


class World:
    """The objects of now, and a tracker that hears of each change."""

    def __init__(self) -> None:
        self.tracker = Tracker(Family.IPV4, HERE, 0.0)
        self.services: dict[tuple[str, str], Json] = {}
        self.slices: dict[tuple[str, str], Json] = {}
        self.known = Desired(Family.IPV4, {}, {})

    def happens(self, event: Any) -> None:
        kind, *rest = event
        if kind in ("some", "all"):
            self.take(some=kind == "some")
        elif kind == "service":
            space, name, address, numbers, outer, generation = rest
            listed = _listed(numbers, generation)
            obj = service(name, f"172.30.0.{address}", namespace=space, ports=listed, externalIPs=outer)
            self.services[space, name] = obj
            self.tracker.service(obj)
        elif kind == "slice":
            space, name, of, numbers, addresses, generation = rest
            obj = endpoint_slice(of, addresses, namespace=space, ports=_listed(numbers, generation))
            obj["metadata"]["name"] = name
            self.slices[space, name] = obj
            self.tracker.endpoint_slice(obj)
        elif kind == "gone service" and tuple(rest) in self.services:
            self.tracker.service(self.services.pop(tuple(rest)), gone=True)
        elif kind == "gone slice" and tuple(rest) in self.slices:
            self.tracker.endpoint_slice(self.slices.pop(tuple(rest)), gone=True)

    def take(self, *, some: bool) -> None:
        before, waiting = self.known, set(self.tracker._unmerged) | set(self.tracker._unserved)
        changes = self.tracker.take(some=some)
        self.known = now = changes.desired
        for old, new in ((before.ports, now.ports), (before.endpoints, now.endpoints)):
            assert {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)} <= changes.ports
        assert some or not self.tracker.pending
        # Of one whose endpoints are too many for a turn, some ports have those of now.
        partly = self.tracker._parts._last.keys()
        for one in waiting & (self.tracker._unmerged.keys() | self.tracker._unserved.keys()) - partly:
            assert _of(before, one) == _of(now, one), "it has all that it had, until its turn"
        asked = {obj["spec"]["clusterIP"] for obj in self.services.values() if obj["spec"]["ports"]}
        assert not any(asked.intersection(port.external_ips) for port in now.ports.values())

    def settled(self) -> Desired:
        for _ in range(100):
            if not self.tracker.pending:
                return self.known
            self.take(some=True)
        raise AssertionError("there is always something pending")


def _of(desired: Desired, service: NamespacedName) -> Any:
    """Without its addresses outside the cluster: it loses one at once that is the cluster IP of another Service."""
    ports = {name: replace(port, external_ips=()) for name, port in desired.ports.items() if name.service == service}
    return ports, {name: found for name, found in desired.endpoints.items() if name.service == service}


@given(history=st.lists(events, max_size=25))
@settings(max_examples=100)
def test_any_history_ends_with_the_rules_of_the_last_objects(history: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, most in _BOUNDS.items():
            patch.setattr(f"proxy.plan.{name}", most)
        world = World()
        for event in history:
            world.happens(event)
        found = world.settled()
        fresh = Tracker(Family.IPV4, HERE, 0.0)
        for obj in world.services.values():
            fresh.service(obj)
        for obj in world.slices.values():
            fresh.endpoint_slice(obj)
        wanted = fresh.take().desired
        assert found.ports == wanted.ports
        assert found.endpoints == wanted.endpoints
