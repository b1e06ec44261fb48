"""Session affinity of a namespace is bounded where all clients are in one map of the kernel."""

from __future__ import annotations

from typing import Any

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.model import Problem
from proxy.plan.limits import NO_LESS, Limits
from proxy.plan.tracker import Tracker
from tests.builders.services import service
from tests.unit.proxy.build import HERE

MOST = 10


def sticky(name: str, count: int, namespace: str = "ns", **spec: Any) -> Json:
    ports = [{"name": f"p{one}", "port": one + 1, "protocol": "UDP"} for one in range(count)]
    address = f"172.30.{sum(name.encode()) % 256}.{len(namespace)}"
    return service(name, address, namespace=namespace, ports=ports, sessionAffinity="ClientIP", **spec)


class World:
    def __init__(self, most: int | None = MOST) -> None:
        self.tracker = Tracker(Family.IPV4, HERE, 0.0, NO_LESS if most is None else Limits(sticky=most))
        self.problems: tuple[Problem, ...] = ()

    def put(self, *objects: Json, gone: bool = False) -> dict[str, int]:
        """By Service, how many of its ports have session affinity."""
        for obj in objects:
            self.tracker.service(obj, gone=gone)
        taken = self.tracker.take()
        self.problems = taken.problems
        found: dict[str, int] = {}
        for name, port in taken.desired.ports.items():
            found[str(name.service)] = found.get(str(name.service), 0) + bool(port.affinity_seconds)
        return found


def test_one_namespace_leaves_room_for_the_clients_of_others() -> None:
    world = World()
    assert world.put(sticky("a", 100), sticky("b", 3, "other")) == {"ns/a": MOST, "other/b": 3}
    assert [one.obj for one in world.problems] == ["Service ns/a"] and "90 ports" in world.problems[0].message
    assert len(world.tracker.current().ports) == 103, "all are served"
    assert world.put(sticky("c", 1))["ns/c"] == 0
    assert world.put(sticky("a", 9)) == {"ns/a": 9, "ns/c": 0, "other/b": 3}
    assert world.put(sticky("c", 2))["ns/c"] == 1, "there is room when it is written again"
    world.put(sticky("a", 9), gone=True)
    assert world.put(sticky("c", 3)) == {"ns/c": 3, "other/b": 3}


def test_a_service_that_is_written_again_has_room_though_nothing_of_it_has_changed() -> None:
    world = World()
    assert world.put(sticky("a", MOST), sticky("c", 2)) == {"ns/a": MOST, "ns/c": 0}
    world.put(sticky("a", MOST), gone=True)
    assert world.put() == {"ns/c": 0}
    again = {**sticky("c", 2), "metadata": {"namespace": "ns", "name": "c", "annotations": {"at": "noon"}}}
    assert world.put(again) == {"ns/c": 2}
    world.put(again, gone=True)
    world.tracker.service(again, gone=True)
    assert not world.tracker.pending, "it lacks nothing any more"


def test_the_same_ones_have_room_on_every_node() -> None:
    """Those of a first list: the order of a set is another one in each process."""
    world = World()
    found = world.put(*[sticky(f"s{number:02}", 1) for number in range(40)])
    assert [name for name, count in found.items() if count] == [f"ns/s{number:02}" for number in range(MOST)]


def test_each_address_of_a_port_counts() -> None:
    world = World()
    external = [f"192.168.99.{one}" for one in range(8)]
    assert world.put(sticky("a", 2, externalIPs=external)) == {"ns/a": 1}
    assert world.put(sticky("a", 2, externalIPs=[*external, "192.168.99.9", "192.168.99.10"])) == {"ns/a": 0}


def test_elsewhere_there_is_no_bound() -> None:
    world = World(None)
    assert world.put(sticky("a", 1000)) == {"ns/a": 1000} and not world.problems
