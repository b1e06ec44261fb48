"""Ports of all Services of a namespace: bounded together, and nobody else has fewer."""

from __future__ import annotations

import time

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from proxy.model import NamespacedName, ServicePort, ServicePortName
from proxy.plan import port_shares
from proxy.plan.port_shares import LEAST, MOST_OF_NAMESPACE, PortShares
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
    for number in range(6):
        assert not tracker.service(huge(number))
    (problem,) = tracker.take().problems
    assert problem.obj == "Namespace ns" and "all ports but the first 16 are left out of huge5:" in problem.message
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


def test_ports_that_come_back_do_so_in_parts() -> None:
    """Five deletions brought 100,000 ports back in one turn of the proxy's loop: 0.7 s."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(10):
        tracker.service(huge(number))
    served(tracker)
    for number in range(5):
        tracker.service(huge(number), gone=True)
    tracker.take(some=True)
    ports = [sum(1 for port in tracker._ports if port.service.name == f"huge{number}") for number in range(5, 10)]
    assert ports == [MANY, LEAST, LEAST, LEAST, LEAST]
    while tracker.pending:
        tracker.take(some=True)
    assert set(served(tracker).values()) == {MANY}


def test_a_service_that_is_cut_and_changes_stays_cut() -> None:
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(6):
        tracker.service(huge(number))
    changed = huge(5)
    changed["spec"]["ports"][0]["port"] = 30_000
    tracker.service(changed)
    found = tracker.take().desired.ports
    own = [port.port for name, port in found.items() if name.service.name == "huge5"]
    assert len(own) == LEAST and 30_000 in own


def test_thousands_of_small_services_beside_huge_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a namespace were put in order for each: 12 s of the loop for 5,000, at the start of every proxy."""
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    monkeypatch.setattr(port_shares, "MOST_OF_NAMESPACE", 2000)
    for number in range(5):
        tracker.service(huge(number, ports=400))
    began = time.process_time()
    for number in range(3000):
        tracker.service(service(f"s{number:05}", f"172.29.{number >> 8}.{number & 255}"))
    tracker.take()
    for number in range(20):
        tracker.service(service("s00001", "172.29.0.1", externalIPs=[f"192.0.2.{number}"]))
    assert time.process_time() - began < 2.0
    found = served(tracker)
    assert len(found) == 3005 and found["ns/huge4"] == LEAST


def test_what_is_kept_of_ports_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole objects were kept as text, with labels, in both families: 1.5 to 6.6 MB for each, without any bound."""
    monkeypatch.setattr(port_shares, "MOST_OF_NAMESPACE", 2000)
    monkeypatch.setattr(port_shares, "MOST_KEPT", 20_000)
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(10, 90):
        one = huge(number, ports=400)
        one["metadata"] |= {"labels": {f"example.com/{key}": "y" * 63 for key in range(1000)}}
        tracker.service(one)
    tracker.take()
    space = tracker._port_shares._namespaces["ns"]
    kept = sum(map(len, space.kept.values()))
    assert 10_000 < kept == space.kept_bytes <= 20_000 and len(space.reduced) == 75
    for number in range(10, 85):
        tracker.service(huge(number), gone=True)
    assert set(served(tracker).values()) == {LEAST}, "what is not kept comes back when it is written again"
    for number in range(85, 90):
        tracker.service(huge(number, ports=400))
    assert set(served(tracker).values()) == {400}


def test_a_small_service_that_is_written_again_keeps_its_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """There was room for all its ports, but none to keep them while it was not known: it had 16 from then on."""
    monkeypatch.setattr(port_shares, "MOST_OF_NAMESPACE", 2000)
    monkeypatch.setattr(port_shares, "MOST_KEPT", 20_000)
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number in range(10, 90):
        tracker.service(huge(number, ports=400))
    tracker.service(huge(90, ports=17))
    assert served(tracker)["ns/huge90"] == 17
    for number, ports in ((10, 400), (90, 17), (91, 18)):
        again = huge(number, ports=ports)
        again["spec"]["externalIPs"] = ["192.0.2.1"]
        tracker.service(again)
        assert served(tracker)[f"ns/huge{number}"] == ports
    tracker.service(huge(89, ports=19))
    assert served(tracker)["ns/huge89"] == 19, "it was one of those without room"


def test_each_service_with_fewer_ports_than_the_one_before() -> None:
    """All of them come before those without room: until they are shared out, they do not have all they ask for."""
    shares, had = PortShares(), 0
    for number in range(60):
        service_name = NamespacedName("ns", f"s{number}")
        names = [ServicePortName(service_name, str(port), "TCP") for port in range(MANY - number)]
        had += len(shares.put(service_name, {name: ServicePort(name, "172.30.0.1", 80) for name in names}))
    assert had <= 2 * MOST_OF_NAMESPACE + 60 * LEAST


def test_what_comes_back_makes_room_for_what_is_left_out_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_shares, "MOST_OF_NAMESPACE", 1000)
    monkeypatch.setattr(port_shares, "MOST_KEPT", 12_000)  # of one of 500
    tracker = Tracker(Family.IPV4, HERE, 0.0)
    for number, ports in ((1, 500), (2, 400), (3, 450)):
        tracker.service(huge(number, ports=ports))
    assert served(tracker) == {"ns/huge1": LEAST, "ns/huge2": 400, "ns/huge3": 450}
    tracker.service(huge(2), gone=True)
    tracker.service(huge(3, ports=500))
    tracker.service(huge(4, ports=17))
    assert served(tracker) == {"ns/huge1": 500, "ns/huge3": LEAST, "ns/huge4": 17}
    tracker.service(huge(1), gone=True)
    assert served(tracker) == {"ns/huge3": 500, "ns/huge4": 17}


def test_ports_come_back_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_shares, "MOST_OF_NAMESPACE", 1000)
    tracker = Tracker(Family.IPV4, HERE, 0.0)

    def web() -> dict[ServicePortName, ServicePort]:
        return {name: one for name, one in tracker.take().desired.ports.items() if name.service.name == "web"}

    entries = [
        {"name": f"p{port}", "port": port, "protocol": "UDP", "nodePort": 30_000 + port} for port in range(1, 99)
    ]
    tracker.service(service("web", "172.30.9.9", ports=entries, externalIPs=["192.0.2.1"], sessionAffinity="ClientIP"))
    before = web()
    assert len(before) == 98
    for number in range(10, 22):
        tracker.service(huge(number, ports=97))
    assert web() == dict(list(before.items())[:LEAST])
    for number in range(10, 22):
        tracker.service(huge(number, ports=97), gone=True)
    assert web() == before
