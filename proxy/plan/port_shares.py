"""How many ports the Services of a namespace may have together. Pure.

A Service may have 20,000 ports, each of which takes a kilobyte or two of every proxy. Those that have many and find no
room keep their first ones. The others are kept in short, to come back when there is room, and of a namespace only so
much: a Service that finds no room there either comes back when it is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from nodelib.json_values import compact, decode
from nodelib.text import first_of
from proxy.model import NamespacedName, Problem, ServicePort, ServicePortName

MOST_OF_NAMESPACE = 100_000
LEAST = 16  # ports of any Service, however many others take
MOST_KEPT = 8 << 20  # bytes of ports that are left out, of a namespace
_SHOWN = 3  # Services in one line of the log

Ports = Mapping[ServicePortName, ServicePort]


@dataclass(slots=True)
class _Namespace:
    """Its Services by how many ports they have. `cut`: those that have their first ones; `kept`: what these lack."""

    ports: dict[NamespacedName, int] = field(default_factory=dict)
    total: int = 0
    cut: set[NamespacedName] = field(default_factory=set)
    kept: dict[NamespacedName, bytes] = field(default_factory=dict)
    size: int = 0  # bytes that are kept
    told: frozenset[NamespacedName] = frozenset()  # of `cut`, those that were last told of

    def over(self) -> set[NamespacedName]:
        """Those for whom there is no room; whoever has little comes first, and the same ones on every node."""
        if self.total <= MOST_OF_NAMESPACE:
            return set()
        left, found = MOST_OF_NAMESPACE, set()
        for service, count in sorted(self.ports.items(), key=lambda one: (one[1], one[0])):
            if count > left and count > LEAST:
                found.add(service)
            left -= LEAST if service in found else count
        return found

    def cuts(self, service: NamespacedName, ports: Ports) -> Ports:
        """Leave out all but its first ports."""
        self.cut.add(service)
        self.size -= len(self.kept.pop(service, b""))
        # More than that is not even put together.
        if self.size + 16 * len(ports) <= MOST_KEPT:
            short = _short(ports)
            if self.size + len(short) <= MOST_KEPT:
                self.kept[service] = short
                self.size += len(short)
        return dict(islice(ports.items(), LEAST))

    def uncut(self, service: NamespacedName) -> bytes:
        self.cut.discard(service)
        short = self.kept.pop(service, b"")
        self.size -= len(short)
        return short


class PortShares:
    """In memory only; not thread-safe."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _Namespace] = {}
        self._changed: set[str] = set()  # namespaces that are to be shared out anew

    @property
    def is_stale(self) -> bool:
        """Whether bound() may find something."""
        return bool(self._changed)

    def put(self, service: NamespacedName, ports: Ports) -> Ports:
        """The ports that a Service has now, none: it is gone. Returns those that it may have until bound() says more:
        namespaces are shared out once for many changes.
        """
        space = self._namespaces.setdefault(service.namespace, _Namespace())
        was_over = space.total > MOST_OF_NAMESPACE
        space.uncut(service)
        space.total += len(ports) - space.ports.pop(service, 0)
        if ports:
            space.ports[service] = len(ports)
        is_over = space.total > MOST_OF_NAMESPACE
        if was_over or is_over:
            self._changed.add(service.namespace)
        elif not space.ports:
            del self._namespaces[service.namespace]
        return space.cuts(service, ports) if is_over and len(ports) > LEAST else ports

    def bound(self, ports_of: Callable[[NamespacedName], Ports]) -> tuple[dict[NamespacedName, Ports], list[Problem]]:
        """Share out anew. `ports_of`: all those of a Service that is not cut. Returns who has more of them now, or
        fewer."""
        found: dict[NamespacedName, Ports] = {}
        problems: list[Problem] = []
        changed, self._changed = self._changed, set()
        for name in changed:
            space = self._namespaces.get(name)
            if space is None:
                continue
            over = space.over()
            for service in sorted(over - space.cut):
                found[service] = space.cuts(service, ports_of(service))
            for service in sorted(space.cut - over):
                if short := space.kept.get(service):
                    space.uncut(service)
                    found[service] = dict(_whole(short, ports_of(service)))
            if new := space.cut - space.told:
                which = first_of(sorted(one.name for one in new), _SHOWN)
                text = f"all ports but the first {LEAST} are left out of {which}: its Services have too many together"
                problems.append(Problem(f"Namespace {name}", text))
            space.told = frozenset(space.cut)
            if not space.ports:
                del self._namespaces[name]
        return found, problems


def _short(ports: Ports) -> bytes:
    return compact([[key.port, key.protocol, one.port, one.node_port] for key, one in ports.items()]).encode()


def _whole(short: bytes, some: Ports) -> Iterator[tuple[ServicePortName, ServicePort]]:
    """All ports of a Service by some of them: what else these have is the same for all."""
    like = next(iter(some.values()))
    for name, protocol, number, node_port in decode(short):
        key = ServicePortName(like.name.service, name, protocol)
        yield key, replace(like, name=key, port=number, node_port=node_port)
