"""Which endpoints a node uses: the cases of upstream's topology_test.go, in words of our own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from proxy.model import Endpoint, NamespacedName, ServicePort, ServicePortName
from proxy.plan.topology import categorize

PORT = ServicePort(ServicePortName(NamespacedName("ns", "svc"), "p", "TCP"), "172.30.0.1", 80)
EXTERNAL_LOCAL = replace(PORT, node_port=30000, external_local=True)
INTERNAL_LOCAL = replace(PORT, internal_local=True)
BOTH_LOCAL = replace(PORT, node_port=30000, external_local=True, internal_local=True)


def at(number: int, **given: object) -> Endpoint:
    return replace(Endpoint(f"10.1.2.{number}", 80), **given)  # type: ignore[arg-type]


def zones(*names: str) -> frozenset[str]:
    return frozenset(names)


TERMINATING = {"ready": False, "serving": True, "terminating": True}
GONE = {"ready": False, "serving": False, "terminating": True}


@dataclass(frozen=True)
class Case:
    id: str
    endpoints: tuple[Endpoint, ...]
    cluster: str = ""
    local: str = ""
    reachable: str | None = None  # None: as cluster
    any: bool = True
    port: ServicePort = PORT
    zone: str = "a"


CASES = [
    Case("no endpoints", (), any=False),
    Case("all ready ones are used", (at(3), at(4), at(5)), "3 4 5"),
    Case("those not ready are left out", (at(3), at(4, ready=False, serving=False)), "3"),
    Case("none ready", (at(3, ready=False, serving=False),), any=False),
    Case("hints for this zone", (at(3, zone_hints=zones("a")), at(4, zone_hints=zones("b"))), "3"),
    Case("a hint for several zones", (at(3, zone_hints=zones("a", "b")), at(4, zone_hints=zones("b"))), "3"),
    Case("one endpoint has no hint: all are used", (at(3, zone_hints=zones("a")), at(4)), "3 4"),
    Case("no hint is for this zone: all are used", (at(3, zone_hints=zones("b")), at(4, zone_hints=zones("c"))), "3 4"),
    Case(
        "the node has no zone: all are used",
        (at(3, zone_hints=zones("a")), at(4, zone_hints=zones("b"))),
        "3 4",
        zone="",
    ),
    Case(
        "an endpoint that is not ready needs no hint",
        (at(3, zone_hints=zones("a")), at(4, ready=False), at(5, zone_hints=zones("b"))),
        "3",
    ),
    Case(
        "the only endpoint of the zone is not ready: all are used",
        (at(3, ready=False, zone_hints=zones("a")), at(4, zone_hints=zones("b"))),
        "4",
    ),
    Case(
        "node hints come before zone hints",
        (
            at(3, node_hints=zones("here"), zone_hints=zones("a")),
            at(4, node_hints=zones("there"), zone_hints=zones("a")),
        ),
        "3",
    ),
    Case(
        "no node hint for this node: zone hints",
        (at(3, node_hints=zones("x"), zone_hints=zones("a")), at(4, node_hints=zones("y"), zone_hints=zones("b"))),
        "3",
    ),
    Case(
        "an endpoint without node hint: zone hints",
        (at(3, node_hints=zones("here"), zone_hints=zones("b")), at(4, zone_hints=zones("a"))),
        "4",
    ),
    Case("internal Local, endpoints here", (at(3, local=True), at(4)), local="3", reachable="3", port=INTERNAL_LOCAL),
    Case("internal Local, none here", (at(3), at(4)), reachable="", port=INTERNAL_LOCAL),
    Case("internal Local, none ready anywhere", (at(3, ready=False, serving=False),), any=False, port=INTERNAL_LOCAL),
    Case("external Local, endpoints here", (at(3, local=True), at(4)), "3 4", "3", port=EXTERNAL_LOCAL),
    Case("external Local, none here", (at(3), at(4)), "3 4", "", port=EXTERNAL_LOCAL),
    Case(
        "external Local counts only where there is outside access",
        (at(3, local=True), at(4)),
        "3 4",
        port=replace(PORT, external_local=True),
    ),
    Case("both Local", (at(3, local=True), at(4)), "3 4", "3", port=BOTH_LOCAL),
    Case(
        "external Local with zone hints elsewhere: the local one is reachable too",
        (at(3, local=True, zone_hints=zones("b")), at(4, zone_hints=zones("a"))),
        "4",
        "3",
        "3 4",
        port=EXTERNAL_LOCAL,
    ),
    Case("none ready: the terminating ones that serve", (at(3, **TERMINATING), at(4, **GONE)), "3"),
    Case("one ready: no terminating one", (at(3, **TERMINATING), at(4)), "4"),
    Case("terminating and no longer serving", (at(3, **GONE),), any=False),
    Case(
        "Local falls back here although others are ready elsewhere",
        (at(3, local=True, **TERMINATING), at(4)),
        "4",
        "3",
        "3 4",
        port=EXTERNAL_LOCAL,
    ),
    Case(
        "Local: a ready one here before a terminating one",
        (at(3, local=True, **TERMINATING), at(4, local=True)),
        "4",
        "4",
        port=EXTERNAL_LOCAL,
    ),
    Case(
        "all terminating, Local",
        (at(3, local=True, **TERMINATING), at(4, **TERMINATING)),
        "3 4",
        "3",
        port=EXTERNAL_LOCAL,
    ),
    Case("internal Local, terminating elsewhere only", (at(3, **TERMINATING),), reachable="", port=INTERNAL_LOCAL),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_categorize(case: Case) -> None:
    found = categorize(case.endpoints, case.port, "here", case.zone)
    assert (_short(found.cluster), _short(found.local)) == (case.cluster, case.local)
    assert _short(found.reachable) == (case.cluster if case.reachable is None else case.reachable)
    assert found.any is case.any


def _short(endpoints: tuple[Endpoint, ...]) -> str:
    return " ".join([endpoint.ip.rpartition(".")[2] for endpoint in endpoints])
