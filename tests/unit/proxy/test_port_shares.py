"""Ports of all Services of a namespace: bounded together, and nobody else has fewer."""

from __future__ import annotations

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.plan.port_shares import LEAST, MOST_OF_NAMESPACE
from proxy.plan.tracker import Tracker
from tests.builders.services import endpoint_slice, service
from tests.unit.proxy.build import HERE

MANY = 20_000


def huge(number: int, ports: int = MANY, namespace: str = "ns") -> Json:
    entries = [{"name": f"p{port}", "port": port, "protocol": "TCP"} for port in range(1, ports + 1)]
    return service(f"huge{number}", f"172.30.{number}.1", ports=entries, namespace=namespace)


def served(tracker: Tracker) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in tracker.take().desired.ports:
        found[str(name.service)] = found.get(str(name.service), 0) + 1
    return found


def test_the_ports_of_a_namespace_have_a_bound_together() -> None:
    """Each of 1.2 MB took 33 MB of every proxy, a hundred of them 3 GB."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(5):
        assert not tracker.service(huge(number))
    (problem,) = tracker.service(huge(5))
    assert problem.obj == "Service ns/huge5" and "19984 ports are left out" in problem.message
    tracker.service(huge(6, namespace="else"))
    tracker.service(huge(7, ports=3))
    found = served(tracker)
    assert found["ns/huge5"] == LEAST and found["else/huge6"] == MANY and found["ns/huge7"] == 3
    assert found["ns/huge4"] == LEAST, "whoever has little comes first"
    assert sum(count for name, count in found.items() if name.startswith("ns/")) <= MOST_OF_NAMESPACE
    tracker.service(huge(0), gone=True)
    tracker.service(huge(7), gone=True)
    found = served(tracker)
    assert found["ns/huge4"] == found["ns/huge5"] == MANY, "they come back"
    tracker.endpoint_slice(endpoint_slice("huge5", ["10.1.0.1"], ports=[{"name": "p77", "port": 77}]))
    for number in range(1, 6):
        tracker.service(huge(number), gone=True)
    assert served(tracker) == {"else/huge6": MANY}
    assert set(tracker._port_shares._namespaces) == {"else"}


def test_a_service_that_is_cut_and_changes_stays_cut() -> None:
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(6):
        tracker.service(huge(number))
    changed = huge(5)
    changed["spec"]["ports"][0]["port"] = 30_000
    assert len(tracker.service(changed)) == 1
    found = tracker.take().desired.ports
    own = [port.port for name, port in found.items() if name.service.name == "huge5"]
    assert len(own) == LEAST and 30_000 in own
