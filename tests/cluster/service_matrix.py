"""Services and EndpointSlices that together reach every rule of the iptables mode, as a real API server takes them.

All combinations of types, traffic policies and endpoint locations, and single cases beyond them: affinity, source
ranges, hints, several ports and slices, UDP, SCTP, two families, Services that get no rules.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodelib.json_values import Json
from tests.builders.services import PORT, endpoint, endpoint_slice, service

HERE, ZONE, AWAY = "matrix", "z1", "elsewhere"
STICKY: Json = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 600}}}
_RANGES = ["203.0.113.0/25", "192.168.0.0/24"]
_PLACES: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "none": (),
    "here": ((HERE, {}), (HERE, {})),
    "away": ((AWAY, {}), (AWAY, {})),
    "both": ((HERE, {}), (AWAY, {}), (AWAY, {})),
    "ending-here": ((HERE, {"ready": False, "serving": True, "terminating": True}), (AWAY, {})),
    "all-ending": (
        (HERE, {"ready": False, "serving": True, "terminating": True}),
        (AWAY, {"ready": False, "serving": True, "terminating": True}),
    ),
    "ended": ((HERE, {"ready": False, "serving": False, "terminating": True}),),
    "not-ready": ((HERE, {"ready": False, "serving": False}), (AWAY, {"ready": False, "serving": False})),
}


@dataclass(frozen=True)
class Case:
    """One Service, the load balancer's answer in its status, and its slices."""

    service: Json
    slices: tuple[Json, ...] = field(default=())

    @property
    def name(self) -> str:
        return str(self.service["metadata"]["name"])


class _Addresses:
    """Addresses of pods and load balancers, each used once."""

    def __init__(self) -> None:
        self._pods = itertools.count(1)
        self._balancers = itertools.count(1)

    def pod(self, family: str = "IPv4") -> str:
        number = next(self._pods)
        return f"fd00:10:244::{number:x}" if family == "IPv6" else f"10.244.{number // 250}.{number % 250 + 1}"

    def balancer(self) -> str:
        return f"198.51.100.{next(self._balancers)}"


def cases() -> list[Case]:
    """Every Service has a unique name in the namespace "default"."""
    take = _Addresses()
    return [*_internal(take), *_external(take), *_affinity(take), *_hinted(take), *_ports(take), *_families(take)]


def _slice(take: _Addresses, name: str, place: str, ports: Sequence[Json] = (PORT,), suffix: str = "1") -> Json:
    entries = [endpoint(take.pod(), node, **conditions) for node, conditions in _PLACES[place]]
    return endpoint_slice(name, entries, namespace="default", ports=ports, suffix=suffix)


def _service(name: str, *, lb: Sequence[Any] = (), **spec: Any) -> Json:
    return service(name, namespace="default", lb=lb, **spec)


def _internal(take: _Addresses) -> Iterator[Case]:
    for policy, place in itertools.product(("Cluster", "Local"), _PLACES):
        name = f"in-{policy.lower()}-{place}"
        yield Case(_service(name, internalTrafficPolicy=policy), (_slice(take, name, place),))
    yield Case(_service("without-slice"))
    yield Case(_service("headless", clusterIP="None"), (_slice(take, "headless", "here"),))
    yield Case({"metadata": {"namespace": "default", "name": "alias"}, "spec": _alias("example.org")})
    other = _service("other-proxy")
    other["metadata"]["labels"] = {"service.kubernetes.io/service-proxy-name": "another"}
    yield Case(other, (_slice(take, "other-proxy", "here"),))
    yield Case(_service("unready-too", publishNotReadyAddresses=True), (_slice(take, "unready-too", "here"),))


def _external(take: _Addresses) -> Iterator[Case]:
    for kind, outside, inside, place in itertools.product(
        ("NodePort", "LoadBalancer"), ("Cluster", "Local"), ("Cluster", "Local"), ("none", "away", "both", "all-ending")
    ):
        name = f"{kind.lower()}-{outside.lower()}-{inside.lower()}-{place}"
        spec: dict[str, Any] = {"externalTrafficPolicy": outside, "internalTrafficPolicy": inside}
        balancers = [take.balancer()] if kind == "LoadBalancer" else []
        yield Case(_service(name, type=kind, lb=balancers, **spec), (_slice(take, name, place),))
    for outside, place in itertools.product(("Cluster", "Local"), ("none", "away", "both")):
        name = f"ranges-{outside.lower()}-{place}"
        spec = {"externalTrafficPolicy": outside, "loadBalancerSourceRanges": _RANGES}
        lb = [take.balancer(), take.balancer()]
        yield Case(_service(name, type="LoadBalancer", lb=lb, **spec), (_slice(take, name, place),))
        name = f"external-ips-{outside.lower()}-{place}"
        spec = {"externalTrafficPolicy": outside, "externalIPs": [take.balancer(), take.balancer()]}
        yield Case(_service(name, **spec), (_slice(take, name, place),))
    every = _service("ranges-all", type="LoadBalancer", lb=[take.balancer()], loadBalancerSourceRanges=["0.0.0.0/0"])
    yield Case(every, (_slice(take, "ranges-all", "both"),))
    # 10.89.250.0/24 holds the node: the load balancer's own address must be let in as well.
    own = ["10.89.250.0/24", " 203.0.113.7/32"]
    here = _service("ranges-node", type="LoadBalancer", lb=[take.balancer()], loadBalancerSourceRanges=own)
    yield Case(here, (_slice(take, "ranges-node", "both"),))
    through = [{"ip": take.balancer(), "ipMode": "Proxy"}, {"ip": take.balancer(), "ipMode": "VIP"}]
    yield Case(_service("lb-modes", type="LoadBalancer", lb=through), (_slice(take, "lb-modes", "both"),))
    named = _service("lb-name", type="LoadBalancer", lb=[{"hostname": "lb.example.org"}])
    yield Case(named, (_slice(take, "lb-name", "both"),))
    bare = _service("lb-no-node-port", type="LoadBalancer", lb=[take.balancer()], allocateLoadBalancerNodePorts=False)
    yield Case(bare, (_slice(take, "lb-no-node-port", "both"),))
    everything = _service("all-doors", type="LoadBalancer", lb=[take.balancer()], externalIPs=[take.balancer()])
    yield Case(everything, (_slice(take, "all-doors", "both"),))


def _affinity(take: _Addresses) -> Iterator[Case]:
    for kind, outside in (("ClusterIP", ""), ("NodePort", "Cluster"), ("LoadBalancer", "Local")):
        name = f"sticky-{kind.lower()}"
        spec: dict[str, Any] = {"externalTrafficPolicy": outside} if outside else {}
        lb = [take.balancer()] if kind == "LoadBalancer" else []
        yield Case(_service(name, type=kind, lb=lb, **STICKY, **spec), (_slice(take, name, "both"),))
    default = _service("sticky-default", sessionAffinity="ClientIP")
    yield Case(default, (_slice(take, "sticky-default", "here"),))


def _hinted(take: _Addresses) -> Iterator[Case]:
    def hinted(name: str, *given: dict[str, Any], **spec: Any) -> Case:
        entries = [endpoint(take.pod(), AWAY if number else HERE, **hints) for number, hints in enumerate(given)]
        return Case(_service(name, **spec), (endpoint_slice(name, entries, namespace="default"),))

    near = {"trafficDistribution": "PreferSameZone"}
    yield hinted("zone-mine", {"zones": ["z2"]}, {"zones": [ZONE]}, {"zones": [ZONE]}, **near)
    yield hinted("zone-none-mine", {"zones": ["z2"]}, {"zones": ["z3"]}, **near)
    yield hinted("zone-one-missing", {"zones": [ZONE]}, {}, **near)
    yield hinted("node-mine", {"zones": [ZONE], "nodes": [HERE]}, {"zones": [ZONE], "nodes": [AWAY]})
    yield hinted("node-away", {"zones": [ZONE], "nodes": [AWAY]}, {"zones": ["z2"], "nodes": [AWAY]})
    yield hinted(
        "zone-local", {"zones": ["z2"]}, {"zones": [ZONE]}, type="NodePort", externalTrafficPolicy="Local", **near
    )


def _ports(take: _Addresses) -> Iterator[Case]:
    both = [{"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "dns-tcp", "port": 53, "protocol": "TCP"}]
    yield Case(_service("dns", type="NodePort", ports=both), (_slice(take, "dns", "both", both),))
    far = [{"name": "metrics", "port": 9153, "targetPort": 19153}, {"name": "main", "port": 80, "targetPort": 8080}]
    there = [{"name": "metrics", "port": 19153, "protocol": "TCP"}, {"name": "main", "port": 8080, "protocol": "TCP"}]
    yield Case(_service("two-ports", ports=far), (_slice(take, "two-ports", "both", there),))
    yield Case(_service("half-ports", ports=far), (_slice(take, "half-ports", "both", there[:1]),))
    noname = [{"name": "", "port": 9001, "protocol": "TCP"}]
    yield Case(_service("no-name", ports=[{"port": 9000}]), (_slice(take, "no-name", "here", noname),))
    udp = [{"name": "quic", "port": 443, "protocol": "UDP"}]
    yield Case(_service("udp-local", type="NodePort", ports=udp, externalTrafficPolicy="Local"), ())
    yield Case(_service("sctp", ports=[{"name": "s", "port": 7, "protocol": "SCTP"}]), (_sctp(take),))
    first, second = _slice(take, "slices", "both"), _slice(take, "slices", "here", suffix="2")
    second["endpoints"].append(dict(first["endpoints"][0]))
    yield Case(_service("slices"), (first, second))
    again = _slice(take, "again", "here", suffix="2")
    old = endpoint(again["endpoints"][0]["addresses"][0], HERE, ready=False, serving=True, terminating=True)
    yield Case(_service("again"), (endpoint_slice("again", [old], namespace="default"), again))


def _families(take: _Addresses) -> Iterator[Case]:
    dual = {"ipFamilyPolicy": "RequireDualStack"}
    six = [endpoint(take.pod("IPv6"), node) for node in (HERE, AWAY)]
    slice_six = endpoint_slice("dual", six, namespace="default", suffix="6", address_type="IPv6")
    yield Case(_service("dual", type="NodePort", **dual), (_slice(take, "dual", "both"), slice_six))
    yield Case(_service("dual-half", **dual), (_slice(take, "dual-half", "here"),))
    only: Json = {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}
    lb6 = ["2001:db8::10", "203.0.113.200"]
    balanced = _service(
        "six-lb", type="LoadBalancer", lb=lb6, loadBalancerSourceRanges=["2001:db8:1::/48", "203.0.113.0/25"], **only
    )
    entries = [endpoint(take.pod("IPv6"), HERE)]
    yield Case(balanced, (endpoint_slice("six-lb", entries, namespace="default", address_type="IPv6"),))
    yield Case(_service("six-sticky", externalIPs=["2001:db8::20"], **only, **STICKY), (_six(take, "six-sticky"),))
    yield Case(_service("six-empty", type="NodePort", **only))


def _six(take: _Addresses, name: str) -> Json:
    entries = [endpoint(take.pod("IPv6"), node) for node in (HERE, AWAY, AWAY)]
    return endpoint_slice(name, entries, namespace="default", address_type="IPv6")


def _sctp(take: _Addresses) -> Json:
    return _slice(take, "sctp", "both", [{"name": "s", "port": 7, "protocol": "SCTP"}])


def _alias(name: str) -> Json:
    return {"type": "ExternalName", "externalName": name}
