"""Reads EndpointSlices and merges those of one Service into the endpoints of its ports. Pure.

Follows upstream pkg/proxy/endpointslicecache.go. Of two entries with the same address and port the one that is not
terminating wins: an address may be reused before the old Pod is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from nodelib.firewall.objects import Family
from nodelib.json_values import Json, objects_in
from proxy.model import PROTOCOLS, Endpoint, NamespacedName, Problem, ServicePortName
from proxy.plan.addresses import family_of, parse_ip, special
from proxy.plan.problems import limited, shown
from proxy.plan.services import is_port

SERVICE_NAME = "kubernetes.io/service-name"
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
# Of one port. Three for each node of the largest cluster that Kubernetes supports; upstream has no limit, but 100,000
# endpoints, which everybody may write who may write EndpointSlices, hold up the rules of all Services for minutes.
MOST_ENDPOINTS = 16_384
_MOST_PAIRS = 100_000  # endpoints times ports of one slice: the API server accepts 20 million
# Of all slices of a Service together: all of them are merged anew when one of them changes, on the loop.
MOST_OF_SERVICE = 400_000


Pairs = tuple[tuple[ServicePortName, tuple[Endpoint, ...]], ...]


@dataclass(slots=True)
class Slice:
    """One EndpointSlice, reduced to what the rules depend on.

    `addresses`: its endpoints, still with port 0. Each has each port, which takes a hundred times as much memory if
    there are a hundred ports: `unfold()` makes these pairs, and `fold()` forgets them.
    """

    service: NamespacedName
    name: str
    family: Family
    addresses: tuple[Endpoint, ...]
    ports: tuple[tuple[ServicePortName, int], ...]
    _pairs: Pairs | None = field(default=None, compare=False, repr=False)

    @property
    def size(self) -> int:
        """How many pairs it has."""
        return len(self.addresses) * len(self.ports)

    def unfold(self) -> Pairs:
        """The endpoints of each port."""
        if self._pairs is None:
            self._pairs = tuple(
                [(name, tuple([_at(endpoint, number) for endpoint in self.addresses])) for name, number in self.ports]
            )
        return self._pairs

    def fold(self) -> None:
        self._pairs = None


def slice_name(obj: Json) -> NamespacedName | None:
    """None for what has no name."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict) or not (meta.get("namespace") and meta.get("name")):
        return None
    return NamespacedName(str(meta["namespace"]), str(meta["name"]))


def slice_key(obj: Json) -> tuple[NamespacedName, str] | None:
    """(Service, slice name); None for a slice that belongs to no Service."""
    meta = obj.get("metadata")
    if not isinstance(meta, dict):
        return None
    labels = meta.get("labels")
    service = labels.get(SERVICE_NAME) if isinstance(labels, dict) else None
    namespace, name = meta.get("namespace"), meta.get("name")
    if not (service and namespace and name):
        return None
    return NamespacedName(str(namespace), str(service)), str(name)


def parse_slice(obj: Json, node: str) -> tuple[Slice | None, list[Problem]]:
    """The slice as seen from `node`, this node's name; None for one without a Service, or of type FQDN."""
    key = slice_key(obj)
    kind = obj.get("addressType")
    if key is None or kind not in (Family.IPV4.value, Family.IPV6.value):
        return None, []
    service, name = key
    family = Family(str(kind))
    problems: list[str] = []
    addresses = _addresses(obj.get("endpoints"), family, node, problems)
    found: list[tuple[ServicePortName, int]] = []
    ports = objects_in(obj.get("ports"))
    room = _MOST_PAIRS // max(1, len(addresses))
    if len(ports) > room:
        problems.append(f"{len(ports) - room} ports are left out: too many for {len(addresses)} endpoints")
    for port in ports[:room]:
        port_name, number, protocol = port.get("name"), port.get("port"), port.get("protocol") or "TCP"
        if not isinstance(port_name, str) or not is_port(number) or protocol not in PROTOCOLS:
            values = f"{shown(port_name)} {shown(number)}/{shown(protocol)}"
            problems.append(f"port {values} is left out")
            continue
        found.append((ServicePortName(service, port_name, protocol), number))
    label = f"EndpointSlice {shown(service.namespace)[1:-1]}/{shown(name)[1:-1]}" if problems else ""
    reported = limited([Problem(label, text) for text in problems])
    return Slice(service, name, family, tuple(addresses), tuple(found)), reported


def merge(
    slices: Iterable[Slice], room: int = MOST_OF_SERVICE
) -> tuple[dict[ServicePortName, tuple[Endpoint, ...]], list[Problem]]:
    """All endpoints of one Service by port, sorted by "ip:port". Ports without endpoints are left out.

    `room`: for how many pairs of endpoints and ports there is room.
    """
    by_port: dict[ServicePortName, dict[str, Endpoint]] = {}
    problems: list[Problem] = []
    most = room
    for one in sorted(slices, key=lambda one: one.name):  # the same are left out on every node
        if one.size > room:
            text = f"EndpointSlice {one.name} is left out: more than {most} pairs of endpoints and ports"
            problems.append(Problem(f"Service {one.service}", text))
            one.fold()
            continue
        room -= one.size
        for name, endpoints in one.unfold():
            known = by_port.setdefault(name, {})
            for endpoint in endpoints:
                text = str(endpoint)
                if text not in known or not endpoint.terminating:
                    known[text] = endpoint
    merged = {
        name: tuple([known[text] for text in sorted(known)[:MOST_ENDPOINTS]])
        for name, known in by_port.items()
        if known
    }
    problems += [
        Problem(f"Service {name}", f"it has {len(known)} endpoints: only the first {MOST_ENDPOINTS} are used")
        for name, known in by_port.items()
        if len(known) > MOST_ENDPOINTS
    ]
    return merged, limited(problems)


def _addresses(given: object, family: Family, node: str, problems: list[str]) -> list[Endpoint]:
    """The slice's endpoints, still with port 0: each is repeated for every port of the slice."""
    found = []
    known: dict[frozenset[str], frozenset[str]] = {}
    for entry in objects_in(given):
        listed = entry.get("addresses")
        # Only the first address is used: the API defines an endpoint's addresses as fungible.
        address = parse_ip(listed[0]) if isinstance(listed, list) and listed else None
        if address is None or family_of(address) is not family or special(address):
            problems.append(f"an endpoint with the addresses {shown(listed)} is left out")
            continue
        conditions = entry.get("conditions")
        conditions = conditions if isinstance(conditions, dict) else {}
        hints = entry.get("hints")
        hints = hints if isinstance(hints, dict) else {}
        found.append(
            Endpoint(
                address,
                0,
                local=bool(node) and entry.get("nodeName") == node,
                ready=conditions.get("ready") in (None, True),
                serving=conditions.get("serving") in (None, True),
                terminating=conditions.get("terminating") is True,
                zone_hints=_names(hints.get("forZones"), known),
                node_hints=_names(hints.get("forNodes"), known),
            )
        )
    return found


def _at(endpoint: Endpoint, port: int) -> Endpoint:
    return Endpoint(
        endpoint.ip,
        port,
        endpoint.local,
        endpoint.ready,
        endpoint.serving,
        endpoint.terminating,
        endpoint.zone_hints,
        endpoint.node_hints,
    )


def _names(given: object, known: dict[frozenset[str], frozenset[str]]) -> frozenset[str]:
    """One object for all endpoints that have the same: even an empty set is larger than all else of an endpoint."""
    found = frozenset([str(item["name"]) for item in objects_in(given) if item.get("name")])
    return known.setdefault(found, found)
