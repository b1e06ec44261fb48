"""Services and EndpointSlices of one address family as they are now, and what changed since the last sync.

Follows upstream's change trackers (pkg/proxy/servicechangetracker.go, endpointschangetracker.go), per service port:
an update of something that no rule depends on is not a change. In memory only; not thread-safe.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from nodelib.firewall.objects import Family
from nodelib.json_values import Json, object_or_empty
from nodelib.kube.times import parse_rfc3339
from proxy.model import Desired, Endpoint, NamespacedName, Problem, ServicePort, ServicePortName
from proxy.plan.api_servers import SERVICE, ApiServers
from proxy.plan.endpoint_shares import EndpointShares
from proxy.plan.limits import NO_LESS, Limits
from proxy.plan.outer import OuterAddresses
from proxy.plan.parts import Parts
from proxy.plan.pod_ranges import PodRanges
from proxy.plan.port_shares import PortShares
from proxy.plan.services import parse_service, service_name
from proxy.plan.slices import TRIGGER_TIME, Slice, merge, parse_slice, slice_key, slice_name
from proxy.plan.sticky_shares import StickyShares
from proxy.plan.turns import Turns


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
    """`node`: this node's name. `started`: wall-clock seconds; trigger times before it are not measured. `pods`:
    addresses that no Service has."""

    def __init__(
        self, family: Family, node: str, started: float, limits: Limits = NO_LESS, pods: PodRanges | None = None
    ) -> None:
        self.family = family
        self._node = node
        self._started = started
        self._ports: dict[ServicePortName, ServicePort] = {}
        self._served: dict[ServicePortName, ServicePort] = {}  # the same, without what they may not have
        self._outer, self._api_servers = OuterAddresses(pods, limits.address_rules), ApiServers()
        self._sticky = StickyShares(limits.sticky)
        self._served_names: dict[NamespacedName, tuple[ServicePortName, ...]] = {}
        # Those whose ports may be other ones than the served ones, in the order in which they changed.
        self._unserved: dict[NamespacedName, None] = {}
        self._refused: list[Problem] = []
        self._names: dict[NamespacedName, tuple[ServicePortName, ...]] = {}
        self._endpoints: dict[ServicePortName, tuple[Endpoint, ...]] = {}
        self._slices: dict[NamespacedName, dict[str, Slice]] = {}
        self._owners: dict[NamespacedName, NamespacedName] = {}  # of slices: the Service that each was counted for
        self._shares, self._port_shares = (
            EndpointShares(limits.pairs, limits.pairs_of_service),
            PortShares(limits.ports),
        )
        self._merged: dict[NamespacedName, tuple[ServicePortName, ...]] = {}
        self._sizes: dict[NamespacedName, int] = {}  # of what is merged: pairs, and ports without endpoints
        self._unmerged: dict[NamespacedName, None] = {}  # in the order in which their slices changed
        self._turns, self._parts = Turns(limits.at_once), Parts()
        self._changed: set[ServicePortName] = set()
        self._last = Desired(family)  # that take() gave
        self._triggers: dict[NamespacedName, list[float]] = {}

    @property
    def pending(self) -> bool:
        return bool(self._changed or self._unserved or self._unmerged or self._port_shares.is_stale)

    @property
    def pending_services(self) -> int:
        return len({name.service for name in self._changed} | self._unserved.keys())

    @property
    def pending_endpoints(self) -> int:
        return len(self._unmerged)

    def service(self, obj: Json, *, gone: bool = False) -> list[Problem]:
        """Take a Service that was added or changed, or with `gone` deleted."""
        key = service_name(obj)
        ports, problems = ({}, []) if gone else parse_service(obj, self.family)
        fitting, more = self._outer.fitting(key, ports)
        self._take_service(key, self._port_shares.put(key, fitting))
        if self._sticky.lacks(key):
            self._unserved.setdefault(key)
        return problems + more

    def node(self, addresses: Iterable[str]) -> None:
        """Take the addresses of this node."""
        self._unserved |= dict.fromkeys(sorted(self._outer.set_node(addresses)))

    def _take_service(self, key: NamespacedName, ports: Mapping[ServicePortName, ServicePort]) -> None:
        before = self._names.pop(key, ())
        if ports:
            self._names[key] = tuple(ports)
        changed = {name for name, port in ports.items() if self._ports.get(name) != port}
        gone_ports = [name for name in before if name not in ports]
        for name in gone_ports:
            del self._ports[name]
        self._ports.update((name, ports[name]) for name in changed)
        if changed or gone_ports:
            others = self._outer.put(key, next(iter(ports.values()), None), len(ports))
            self._unserved |= dict.fromkeys([key, *sorted(others)])

    def _ports_of(self, key: NamespacedName) -> Mapping[ServicePortName, ServicePort]:
        return {name: self._ports[name] for name in self._names.get(key, ())}

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
            if self._shares.add(service, parsed.size - (known[name].size if name in known else 0)):
                parsed.unfold()  # not those of all Services at once, in take()
            self._slices.setdefault(service, {})[name] = parsed
            self._owners[own] = service
            self._note_trigger(service, obj)
            self._unmerged.setdefault(service)
        return problems

    def _drop(self, service: NamespacedName, own: NamespacedName) -> None:
        """The slice is no longer one of that Service."""
        known = self._slices[service]
        self._shares.add(service, -known.pop(own.name).size)
        del self._owners[own]
        if not known:
            del self._slices[service]
        self._triggers.pop(service, None)
        self._unmerged.setdefault(service)

    def take(self, *, some: bool = False) -> Changes:
        """A copy of the state with the changes since the last call; the tracker starts a new list of changes.

        `some`: of very many endpoints and ports that have changed only a part; the others keep those that they had, and
        are pending.
        """
        cut, refused = self._port_shares.bound(self._ports_of, some=some)
        for service, ports in cut.items():
            self._take_service(service, ports)
        others, problems = self._shares.bound({service.namespace for service in self._unmerged})
        for service in others:
            self._unmerged.setdefault(service)
        chosen = self._some() if some else self._unmerged.keys() | self._unserved.keys()
        for service in [one for one in self._unmerged if one in chosen]:
            del self._unmerged[service]
            problems += self._merge(service, some=some)
        touched = {name.service for name in self._changed} | (chosen & self._unserved.keys())
        others, more = self._outer.bound({service: self._endpoints_of(service) for service in touched})
        # What these have changed themselves waits: it is not counted yet, and their endpoints may be older.
        waiting = (self._unserved.keys() | self._unmerged.keys()) - chosen
        self._unserved |= dict.fromkeys(sorted(others))
        self._serve((chosen | others) - waiting)
        self._drop_cluster_ips()
        problems += more + self._refused + refused
        self._refused = []
        changed, self._changed = frozenset(self._changed), set()
        triggers = {one: times for one, times in self._triggers.items() if one not in self._unmerged}
        self._triggers = {one: times for one, times in self._triggers.items() if one in self._unmerged}
        return Changes(self._snapshot(changed), changed, triggers, tuple(problems))

    def current(self) -> Desired:
        """The state without taking the changes."""
        self._serve(self._unserved.keys())
        return Desired(self.family, dict(self._served), dict(self._endpoints))

    def _snapshot(self, changed: Set[ServicePortName]) -> Desired:
        """The state, with copies of what has changed since the last one: half of the work of a small change."""
        ports, endpoints = self._last.ports, self._last.endpoints
        if any(self._served.get(name) is not ports.get(name) for name in changed):
            ports = dict(self._served)
        if any(self._endpoints.get(name) is not endpoints.get(name) for name in changed):
            endpoints = dict(self._endpoints)
        self._last = Desired(self.family, ports, endpoints)
        return self._last

    def _merge(self, service: NamespacedName, *, some: bool) -> list[Problem]:
        merged, problems = merge(self._slices.get(service, {}).values(), self._shares.room(service))
        known = self._merged.pop(service, ())
        changed = [name for name in dict.fromkeys((*known, *merged)) if self._endpoints.get(name) != merged.get(name)]
        if some:
            sizes = {name: len(self._endpoints.get(name, ())) + len(merged.get(name, ())) for name in changed}
            changed = self._parts.next(service, sizes, self._turns.at_once)
            if len(changed) < len(sizes):
                self._unmerged[service] = None  # behind whoever waits
        else:
            self._parts.forget(service)
        for name in changed:
            if name in merged:
                self._endpoints[name] = merged[name]
            else:
                del self._endpoints[name]
            self._changed.add(name)
        if service == SERVICE:
            for address in self._api_servers.put(itertools.chain.from_iterable(merged.values())):
                self._unserved |= dict.fromkeys(sorted(self._outer.having(address)))
        self._sizes.pop(service, None)
        names = tuple([name for name in dict.fromkeys((*merged, *known)) if name in self._endpoints])
        if names:
            self._merged[service] = names
            self._sizes[service] = sum([len(self._endpoints[name]) or 1 for name in names])
        return problems

    def _some(self) -> Set[NamespacedName]:
        """Those whose turn it is; all, where they have little together."""
        sizes = {one: self._size(one) for one in self._unmerged.keys() | self._unserved.keys()}
        if sum(sizes.values()) <= self._turns.at_once:
            return sizes.keys()
        return self._turns.chosen(sizes, (self._unmerged, self._unserved), self._in_the_way())

    def _in_the_way(self) -> dict[NamespacedName, Set[NamespacedName]]:
        """By Service that waits: others that wait, and are served at its cluster IP or NodePorts until their turn."""
        having: dict[object, NamespacedName] = {}
        for service in self._unserved:
            having |= dict.fromkeys(self._exclusive(self._served, self._served_names.get(service, ())), service)
        found: dict[NamespacedName, Set[NamespacedName]] = {}
        for service in self._unserved if having else ():
            keys = self._exclusive(self._ports, self._names.get(service, ()))
            if others := {having[key] for key in keys if key in having} - {service}:
                found[service] = others
        return found

    def _exclusive(
        self, ports: Mapping[ServicePortName, ServicePort], names: Sequence[ServicePortName]
    ) -> Iterator[object]:
        """What the API server gives to one Service only."""
        if names:
            yield ports[names[0]].cluster_ip
        for name in names:
            if number := ports[name].node_port:
                yield name.protocol, number

    def _size(self, service: NamespacedName) -> int:
        """How many pairs its change is about, roughly: those that go, those that come, and at each address."""
        pairs, found = self._sizes.get(service, 0), 0
        old, new = self._served_names.get(service, ()), self._names.get(service, ())
        if service in self._unmerged:
            found = pairs + sum([part.size for part in self._slices.get(service, {}).values()])
        if service in self._unserved:
            found += max(pairs, len(old), len(new))
        known = [ports[names[0]] for ports, names in ((self._served, old), (self._ports, new)) if names]
        return found * (1 + max([port.address_count for port in known], default=0))

    def _endpoints_of(self, service: NamespacedName) -> int:
        """How many its ports have together."""
        return sum([len(self._endpoints.get(name, ())) for name in self._names.get(service, ())])

    def _serve(self, services: Set[NamespacedName]) -> None:
        """Bring the ports of those of these Services up to date that have changed, or others that have their addresses.

        In the same order on every node, for what there is room for.
        """
        for service in sorted(self._unserved.keys() & services):
            del self._unserved[service]
            names = self._names.get(service, ())
            for name in set(self._served_names.pop(service, ())).difference(names):
                del self._served[name]
                self._changed.add(name)
            if not names:
                self._sticky.fitting(service, [])
                continue
            self._served_names[service] = names
            external, balanced, problems = self._outer.allowed(service)
            ports = []
            for name in names:
                port, more = self._api_servers.without(_with(self._ports[name], external, balanced))
                ports.append(port)
                problems += more
            self._refused += problems
            ports, problems = self._sticky.fitting(service, ports)
            self._refused += problems
            for port in ports:
                if self._served.get(port.name) != port:
                    self._served[port.name] = port
                    self._changed.add(port.name)

    def _drop_cluster_ips(self) -> None:
        """Services that wait lose them at once: what is sent to such an address belongs to another Service."""
        for service in self._unserved:
            for name in self._served_names.get(service, ()):
                port = self._served[name]
                external, balanced = (
                    self._outer.without_cluster_ips(given) for given in (port.external_ips, port.load_balancer_ips)
                )
                less = _with(port, external, balanced)
                if less is port:
                    break  # its other ports have the same ones
                self._served[name] = less
                self._changed.add(name)

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


def _with(port: ServicePort, external: tuple[str, ...], balanced: tuple[str, ...]) -> ServicePort:
    if port.external_ips == external and port.load_balancer_ips == balanced:
        return port
    return replace(port, external_ips=external, load_balancer_ips=balanced)
