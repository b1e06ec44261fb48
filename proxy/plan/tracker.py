"""Services and EndpointSlices of one address family as they are now, and what changed since the last sync.

Follows upstream's change trackers (pkg/proxy/servicechangetracker.go, endpointschangetracker.go), per service port:
an update of something that no rule depends on is not a change. In memory only; not thread-safe.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodelib.firewall.objects import Family
from nodelib.json_values import Json, object_or_empty
from nodelib.kube.times import parse_rfc3339
from proxy.model import Desired, Endpoint, NamespacedName, Problem, ServicePort, ServicePortName
from proxy.plan.services import parse_service, service_name
from proxy.plan.slices import TRIGGER_TIME, Slice, merge, parse_slice, slice_key, slice_name

# Of the addresses and endpoints of one Service, those of nodes and the cluster IP aside: in nftables mode each is an
# element. Upstream has one rule or element for each address.
MOST_PAIRS = 100_000
_LEAST = 4  # addresses, however many endpoints there are
_SHOWN = 3  # addresses in one line of the log


@dataclass(frozen=True, slots=True)
class Changes:
    """A copy of the tracker's state, and the service ports that changed since the last `take`. `triggers`: wall-clock
    times at which the endpoints of Services changed."""

    desired: Desired
    ports: frozenset[ServicePortName]
    triggers: Mapping[NamespacedName, Sequence[float]] = field(
        default_factory=dict
    )  # when endpoints changed: wall time
    problems: tuple[Problem, ...] = ()

    @property
    def trigger_times(self) -> tuple[float, ...]:
        """Of all endpoint changes."""
        return tuple(itertools.chain.from_iterable(self.triggers.values()))

    @property
    def udp(self) -> bool:
        """Whether a UDP port changed: conntrack may hold flows to endpoints that are gone."""
        return any(name.protocol == "UDP" for name in self.ports)


class Tracker:
    """`node`: this node's name. `started`: wall-clock seconds; trigger times before it are not measured."""

    def __init__(self, family: Family, node: str, started: float) -> None:
        self.family = family
        self._node = node
        self._started = started
        self._ports: dict[ServicePortName, ServicePort] = {}
        self._served: dict[ServicePortName, ServicePort] = {}  # the same, without what they may not have
        self._cluster_ips: Counter[str] = Counter()
        self._outer: dict[str, set[ServicePortName]] = {}  # by address outside the cluster that a Service asks for
        self._refused: list[Problem] = []
        self._room: dict[NamespacedName, int] = {}  # addresses outside the cluster, of Services that have too many
        self._names: dict[NamespacedName, tuple[ServicePortName, ...]] = {}
        self._endpoints: dict[ServicePortName, tuple[Endpoint, ...]] = {}
        self._slices: dict[NamespacedName, dict[str, Slice]] = {}
        self._owners: dict[NamespacedName, NamespacedName] = {}  # of slices: the Service that each was counted for
        self._merged: dict[NamespacedName, tuple[ServicePortName, ...]] = {}
        self._unmerged: set[NamespacedName] = set()
        self._changed: set[ServicePortName] = set()
        self._triggers: dict[NamespacedName, list[float]] = {}

    @property
    def pending(self) -> bool:
        return bool(self._changed or self._unmerged)

    @property
    def pending_services(self) -> int:
        return len({name.service for name in self._changed})

    @property
    def pending_endpoints(self) -> int:
        return len(self._unmerged)

    def service(self, obj: Json, *, gone: bool = False) -> list[Problem]:
        """Take a Service that was added or changed, or with `gone` deleted."""
        key = service_name(obj)
        ports, problems = ({}, []) if gone else parse_service(obj, self.family)
        for name in self._names.pop(key, ()):
            if name not in ports:
                self._set(name, None)
        for name, port in ports.items():
            if self._ports.get(name) != port:
                self._set(name, port)
        if ports:
            self._names[key] = tuple(ports)
        return problems

    def endpoint_slice(self, obj: Json, *, gone: bool = False) -> list[Problem]:
        """Take an EndpointSlice that was added or changed, or with `gone` deleted. Its Service need not exist."""
        key, own = slice_key(obj), slice_name(obj)
        owner = self._owners.get(own) if own is not None else None
        if own is not None and owner is not None and (key is None or key[0] != owner):
            self._drop(owner, own)  # its label names another Service now, or none
        if key is None or own is None:
            return []
        service, name = key
        others = obj.get("addressType") != self.family.value
        parsed, problems = (None, []) if gone or others else parse_slice(obj, self._node)
        known = self._slices.get(service, {})
        if known.get(name) == parsed:
            return problems
        if parsed is None:
            self._drop(service, own)
        else:
            self._slices.setdefault(service, {})[name] = parsed
            self._owners[own] = service
            self._note_trigger(service, obj)
            self._unmerged.add(service)
        return problems

    def _set(self, name: ServicePortName, port: ServicePort | None) -> None:
        old = self._ports.pop(name, None)
        before = {old.cluster_ip} if old is not None else set()
        after = {port.cluster_ip} if port is not None else set()
        for address in _outer(old):
            self._outer[address].discard(name)
            if not self._outer[address]:
                del self._outer[address]
        self._cluster_ips.subtract(before)
        self._cluster_ips.update(after)
        if port is not None:
            self._ports[name] = port
            for address in _outer(port):
                self._outer.setdefault(address, set()).add(name)
        for address in before ^ after:
            if not self._cluster_ips[address]:
                del self._cluster_ips[address]
            for other in self._outer.get(address, ()):
                self._serve(other)
        self._serve(name)

    def _serve(self, name: ServicePortName) -> None:
        """Whoever may write one Service must not get what is sent to another: a cluster IP is nobody's external IP."""
        port, old = self._ports.get(name), self._served.pop(name, None)
        if port is not None and not self._cluster_ips.keys().isdisjoint(_outer(port)):
            taken = sorted(self._cluster_ips.keys() & set(_outer(port)))
            shown = ", ".join(taken[:_SHOWN]) + (f" and {len(taken) - _SHOWN} more" if len(taken) > _SHOWN else "")
            self._refused.append(Problem(f"Service {name}", f"{shown}: a cluster IP is not an external IP"))
            port = replace(
                port,
                external_ips=tuple(one for one in port.external_ips if one not in self._cluster_ips),
                load_balancer_ips=tuple(one for one in port.load_balancer_ips if one not in self._cluster_ips),
            )
        room = self._room.get(name.service)
        if port is not None and room is not None:
            balanced = port.load_balancer_ips[:room]
            port = replace(port, load_balancer_ips=balanced, external_ips=port.external_ips[: room - len(balanced)])
        if port is not None:
            self._served[name] = port
        if port != old:
            self._changed.add(name)

    def _drop(self, service: NamespacedName, own: NamespacedName) -> None:
        """The slice is no longer one of that Service."""
        known = self._slices[service]
        del known[own.name], self._owners[own]
        if not known:
            del self._slices[service]
        self._triggers.pop(service, None)
        self._unmerged.add(service)

    def take(self) -> Changes:
        """A copy of the state with the changes since the last call; the tracker starts a new list of changes."""
        problems: list[Problem] = []
        for service in self._unmerged:
            problems += self._merge(service)
        self._unmerged.clear()
        for service in {name.service for name in self._changed}:
            problems += self._bound(service)
        problems += self._refused
        self._refused = []
        changed, self._changed = frozenset(self._changed), set()
        triggers, self._triggers = self._triggers, {}
        desired = self.current()
        return Changes(desired, changed, triggers, tuple(problems))

    def current(self) -> Desired:
        """The state without taking the changes."""
        return Desired(self.family, dict(self._served), dict(self._endpoints))

    def _merge(self, service: NamespacedName) -> list[Problem]:
        merged, problems = merge(self._slices.get(service, {}).values())
        for name in self._merged.pop(service, ()):
            if name not in merged:
                del self._endpoints[name]
                self._changed.add(name)
        for name, endpoints in merged.items():
            if self._endpoints.get(name) != endpoints:
                self._endpoints[name] = endpoints
                self._changed.add(name)
        if merged:
            self._merged[service] = tuple(merged)
        return problems

    def _bound(self, service: NamespacedName) -> list[Problem]:
        """Leave out addresses of a Service that has too many for its endpoints, the last ones, until it has fewer."""
        names = self._names.get(service, ())
        endpoints = sum(len(self._endpoints.get(name, ())) for name in names)
        addresses = max((self._ports[name].address_count for name in names), default=0)
        room, before = max(_LEAST, MOST_PAIRS // max(1, endpoints)), self._room.pop(service, None)
        too_many = addresses - room
        if too_many > 0:
            self._room[service] = room
        if self._room.get(service) != before:
            for name in names:
                self._serve(name)
        text = f"{too_many} of {addresses} addresses are left out: too many for {endpoints} endpoints of its ports"
        return [Problem(f"Service {service}", text)] if too_many > 0 else []

    def _note_trigger(self, service: NamespacedName, obj: Json) -> None:
        annotations = object_or_empty((obj.get("metadata") or {}).get("annotations"))
        text = annotations.get(TRIGGER_TIME)
        if not isinstance(text, str):
            return
        try:
            time = parse_rfc3339(text)
        except ValueError:
            return
        if time > self._started:
            self._triggers.setdefault(service, []).append(time)


def _outer(port: ServicePort | None) -> tuple[str, ...]:
    return () if port is None else (*port.external_ips, *port.load_balancer_ips)
