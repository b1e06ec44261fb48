"""Which addresses outside the cluster each Service may have: those of load balancers, and external IPs. Pure.

Whoever may write Services in one namespace chooses them, and every proxy of the cluster works on what follows. All
ports of a Service have the same ones, so that they are worked out once for a Service, and for a namespace together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from nodelib.text import first_of
from proxy.model import NamespacedName, Problem, ServicePort, ServicePortName
from proxy.plan.pod_ranges import PodRanges

# Of the addresses and endpoints of one Service, those of nodes and the cluster IP aside: in nftables mode each is an
# element. Upstream has one rule or element for each address.
MOST_PAIRS = 100_000
# Of all Services of a namespace: a Service of 30 KB had 100,000 pairs, and they took 45 MB of every proxy.
MOST_OF_NAMESPACE = 200_000
# Addresses of all Services of a namespace that are kept in memory, served or not.
MOST_KNOWN = 100_000
_LEAST = 4  # addresses of any Service, however many endpoints it has and others take
_SHOWN = 3  # addresses, or Services, in one line of the log


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a Service asks for. `ports`, `ranges`: how many ports and source ranges it has. `of_pods`: those of its
    addresses that are pods'.
    """

    cluster_ip: str
    external: tuple[str, ...]
    balanced: tuple[str, ...]
    ports: int
    ranges: int
    of_pods: frozenset[str] = frozenset()

    @property
    def outer(self) -> frozenset[str]:
        return frozenset((*self.external, *self.balanced))

    @property
    def count(self) -> int:
        return len(self.external) + len(self.balanced)


@dataclass(slots=True)
class _Namespace:
    """What its Services need, and how many addresses those have that there is no room for."""

    needs: dict[NamespacedName, tuple[int, int]] = field(default_factory=dict)  # pairs, and pairs of one address
    total: int = 0
    rooms: dict[NamespacedName, int] = field(default_factory=dict)

    def set(self, service: NamespacedName, pairs: int, each: int) -> None:
        self.total -= self.needs.pop(service, (0, 0))[0]
        if pairs:
            self.needs[service] = pairs, each
            self.total += pairs

    def shared(self, most: int, least: int) -> dict[NamespacedName, int]:
        """Of the Services that have to have fewer addresses: how many, `least` at least. Those that need little come
        first."""
        left, rooms = most, {}
        if self.total > left:
            for service, (pairs, each) in sorted(self.needs.items(), key=lambda one: (one[1][0], one[0])):
                if pairs > left and pairs > least * each:
                    rooms[service] = max(least, left // each)
                    pairs = rooms[service] * each
                left = max(0, left - pairs)
        return rooms


class OuterAddresses:
    """In memory only; not thread-safe. `pods`: addresses that no Service has. `most_rules`: of the addresses of a
    namespace, where each has one for each port whatever the endpoints are."""

    def __init__(self, pods: PodRanges | None = None, most_rules: int | None = None) -> None:
        self._most_rules = most_rules
        self._all_pods = self._pods = pods or PodRanges()
        self._asked: dict[NamespacedName, _Asked] = {}
        self._cluster_ips: Counter[str] = Counter()
        # Who asks for each: nearly always one, for whom a set would be larger than all else.
        self._by_address: dict[str, NamespacedName | set[NamespacedName]] = {}
        self._own: dict[NamespacedName, int] = {}  # addresses, of Services that have too many for their endpoints
        self._namespaces: dict[str, _Namespace] = {}
        self._known: Counter[str] = Counter()  # addresses, by namespace

    def fitting(
        self, service: NamespacedName, ports: Mapping[ServicePortName, ServicePort]
    ) -> tuple[Mapping[ServicePortName, ServicePort], list[Problem]]:
        """The ports of a Service with as many of its addresses as can be kept: each takes some hundred bytes of every
        proxy. A Service that finds no room has its others when it is written again."""
        port = next(iter(ports.values()), None)
        asked = self._asked.get(service)
        room = max(_LEAST, MOST_KNOWN - self._known[service.namespace] + (asked.count if asked else 0))
        if port is None or port.address_count <= room:
            return ports, []
        balanced = port.load_balancer_ips[:room]
        external = port.external_ips[: room - len(balanced)]
        text = f"{port.address_count - room} addresses are left out: the Services of its namespace have too many"
        kept = {name: replace(one, external_ips=external, load_balancer_ips=balanced) for name, one in ports.items()}
        return kept, [Problem(f"Service {service}", text)]

    def put(self, service: NamespacedName, port: ServicePort | None, ports: int) -> set[NamespacedName]:
        """Take one of the `ports` ports of a Service, None: it is gone. Returns whose addresses may be others now."""
        asked = None
        if port is not None:
            asked = self._looked_up(
                _Asked(port.cluster_ip, port.external_ips, port.load_balancer_ips, ports, len(port.source_ranges))
            )
        old = self._asked.pop(service, None)
        if asked is not None:
            self._asked[service] = asked
        self._know(service.namespace, (asked.count if asked else 0) - (old.count if old else 0))
        if (asked and asked.count) or (old and old.count):  # hardly ever
            outer, before = (one.outer if one else frozenset[str]() for one in (asked, old))
            for address in before - outer:
                self._leave(address, service)
            for address in outer - before:
                self._join(address, service)
        known = {one.cluster_ip for one in (asked, old) if one and one.cluster_ip in self._cluster_ips}
        if old:
            self._cluster_ips[old.cluster_ip] -= 1
            if not self._cluster_ips[old.cluster_ip]:
                del self._cluster_ips[old.cluster_ip]
        if asked:
            self._cluster_ips[asked.cluster_ip] += 1
        found = {service}
        # Only of an address that somebody has now and nobody had, or the other way round: a Service has many ports.
        for address in {one.cluster_ip for one in (asked, old) if one}:
            if (address in known) is not (address in self._cluster_ips):
                found |= self.having(address)
        return found

    def set_node(self, addresses: Iterable[str]) -> set[NamespacedName]:
        """Those of this node, and which Services may have other addresses now."""
        pods = self._all_pods.without(addresses)
        if pods.cidrs == self._pods.cidrs:
            return set()
        self._pods = pods
        before = {service: asked for service, asked in self._asked.items() if asked.count}
        self._asked |= {service: self._looked_up(asked) for service, asked in before.items()}
        return {service for service, asked in before.items() if self._asked[service] != asked}

    def bound(self, endpoints: Mapping[NamespacedName, int]) -> tuple[set[NamespacedName], list[Problem]]:
        """The endpoints of all ports of Services that have changed. Returns whose addresses may be others now."""
        found: set[NamespacedName] = set()
        problems: list[Problem] = []
        for service, count in endpoints.items():
            problems += self._bound(service, count, found)
        for name in {one.namespace for one in endpoints}:
            problems += self._share(name, found)
        return found, problems

    def allowed(self, service: NamespacedName) -> tuple[tuple[str, ...], tuple[str, ...], list[Problem]]:
        """Its external IPs and load balancer addresses, without what it may not have, and why."""
        asked = self._asked[service]
        external, balanced = asked.external, asked.balanced
        problems: list[Problem] = []
        if not external and not balanced:
            return external, balanced, problems
        # Whoever may write one Service must not get what is sent to another: a cluster IP is nobody's external IP.
        if taken := sorted(one for one in asked.outer if one in self._cluster_ips):
            text = f"{first_of(taken, _SHOWN)}: a cluster IP is not an external IP"
            problems.append(Problem(f"Service {service}", text))
            external, balanced = self.without_cluster_ips(external), self.without_cluster_ips(balanced)
        if asked.of_pods:
            text = f"{first_of(sorted(asked.of_pods), _SHOWN)}: an address of pods is not an external IP"
            problems.append(Problem(f"Service {service}", text))
            external, balanced = (
                tuple([one for one in given if one not in asked.of_pods]) for given in (external, balanced)
            )
        room = self._room(service)
        if room is not None:
            balanced = balanced[:room]
            external = external[: room - len(balanced)]
        return external, balanced, problems

    def without_cluster_ips(self, addresses: tuple[str, ...]) -> tuple[str, ...]:
        return tuple([one for one in addresses if one not in self._cluster_ips])

    def having(self, address: str) -> set[NamespacedName]:
        """The Services that ask for it."""
        found = self._by_address.get(address, set())
        return found if isinstance(found, set) else {found}

    def _looked_up(self, asked: _Asked) -> _Asked:
        if not asked.count:  # nearly always
            return asked
        return replace(asked, of_pods=frozenset(one for one in asked.outer if self._pods.has(one)))

    def _join(self, address: str, service: NamespacedName) -> None:
        found = self._by_address.setdefault(address, service)
        if isinstance(found, set):
            found.add(service)
        elif found != service:
            self._by_address[address] = {found, service}

    def _leave(self, address: str, service: NamespacedName) -> None:
        found = self._by_address[address]
        if isinstance(found, set):
            found.discard(service)
        if found in (service, set()):
            del self._by_address[address]

    def _know(self, namespace: str, more: int) -> None:
        if not more:
            return
        self._known[namespace] += more
        if not self._known[namespace]:
            del self._known[namespace]

    def _room(self, service: NamespacedName) -> int | None:
        """How many addresses it may have, None: any number."""
        space = self._namespaces.get(service.namespace)
        rooms = (self._own.get(service), space.rooms.get(service) if space else None)
        return min((one for one in rooms if one is not None), default=None)

    def _bound(self, service: NamespacedName, endpoints: int, changed: set[NamespacedName]) -> list[Problem]:
        """Leave out addresses of a Service that has too many for its endpoints, the last ones, until it has fewer."""
        asked, before = self._asked.get(service), self._own.pop(service, None)
        if before is None and (asked is None or not asked.count):  # nearly always
            if (known := self._namespaces.get(service.namespace)) is not None:
                known.set(service, 0, 1)
            return []
        room = max(_LEAST, MOST_PAIRS // max(1, endpoints))
        addresses = asked.count if asked else 0
        if addresses > room:
            self._own[service] = room
        if self._own.get(service) != before:
            changed.add(service)
        space = self._namespaces.setdefault(service.namespace, _Namespace())
        each = max(1, endpoints) if self._most_rules is None else 1
        if asked:
            each = max(each, asked.ports) + (asked.ranges * asked.ports if asked.balanced else 0)
        space.set(service, min(addresses, room) * each, each)
        if addresses <= room:
            return []
        text = f"{addresses - room} of {addresses} addresses are left out: too many for {endpoints} endpoints of its"
        return [Problem(f"Service {service}", f"{text} ports")]

    def _share(self, namespace: str, changed: set[NamespacedName]) -> list[Problem]:
        """Leave out addresses of the Services of a namespace that need most."""
        space = self._namespaces.get(namespace)
        if space is None:
            return []
        # The rules of one address may be 20,000: no Service has any, however few the addresses are, beyond the bound.
        most, least = (MOST_OF_NAMESPACE, _LEAST) if self._most_rules is None else (self._most_rules, 0)
        before, space.rooms = space.rooms, space.shared(most, least)
        if not space.needs:
            del self._namespaces[namespace]
        if before == space.rooms:
            return []
        changed |= {one for one in before.keys() | space.rooms.keys() if before.get(one) != space.rooms.get(one)}
        if not space.rooms:
            return []
        some = sorted(one.name for one in space.rooms)
        which = first_of(some, _SHOWN)
        text = f"addresses outside the cluster are left out of {which}: its Services have too many together"
        return [Problem(f"Namespace {namespace}", text)]
