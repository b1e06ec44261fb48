"""How many ports the Services of a namespace may have together. Pure.

A Service may have 20,000 ports, each of which takes a kilobyte or two of every proxy. Those that have many and find no
room keep their first ones. The others are kept packed, to come back when there is room, and of a namespace only so
much: those that find no room there either come back when their Service is written again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from nodelib.json_values import compact, decode
from nodelib.text import first_of
from proxy.model import NamespacedName, Problem, ServicePort, ServicePortName

MOST_OF_NAMESPACE = 100_000
LEAST = 16  # ports of any Service, however many others take
MOST_KEPT = 8 << 20  # bytes of ports that are left out, of a namespace
_MOST_BACK = 10_000  # ports of Services that get all of theirs again at once, a twelfth of a second
_SHOWN = 3  # Services in one line of the log

Ports = Mapping[ServicePortName, ServicePort]


@dataclass(slots=True)
class _Namespace:
    """Its Services by how many ports they have. `reduced`: those that have their first ones; `kept`: what these lack,
    packed; `most`: ports of all."""

    most: int
    ports: dict[NamespacedName, int] = field(default_factory=dict)
    total: int = 0
    reduced: set[NamespacedName] = field(default_factory=set)
    left_out: int = 0  # ports that the reduced ones lack
    first: tuple[int, NamespacedName] | None = None  # count and name of the first one for which there is no room
    kept: dict[NamespacedName, bytes] = field(default_factory=dict)
    kept_bytes: int = 0
    reported: frozenset[NamespacedName] = frozenset()  # of `reduced`, those that the log has named

    def over(self) -> set[NamespacedName]:
        """Those for whom there is no room; whoever has little comes first, and the same ones on every node."""
        self.first = None
        if self.total <= self.most:
            return set()
        left, found = self.most, set()
        for service, count in sorted(self.ports.items(), key=lambda one: (one[1], one[0])):
            if count > left and count > LEAST:
                found.add(service)
                self.first = self.first or (count, service)
            left -= LEAST if service in found else count
        return found

    def may_have_all(self, service: NamespacedName) -> bool:
        """Whether a Service that was written has all its ports until over() is asked again. One that comes before those
        without room does: nothing of it would be kept where they take all of that. But only so many more at once."""
        count = self.ports.get(service, 0)
        if count <= LEAST or self.total <= self.most:
            return True
        is_early = self.first is not None and (count, service) < self.first
        return is_early and self.total - self.left_out <= 2 * self.most

    def reduce(self, service: NamespacedName, ports: Ports) -> Ports:
        """Leave out all but its first ports."""
        count = self.ports[service]
        self.reduced.add(service)
        self.left_out += count - LEAST
        self.first = min(self.first or (count, service), (count, service))
        # More than that is not even put together.
        if self.kept_bytes + 16 * len(ports) <= MOST_KEPT:
            packed = _packed(ports)
            if self.kept_bytes + len(packed) <= MOST_KEPT:
                self.kept[service] = packed
                self.kept_bytes += len(packed)
        return dict(islice(ports.items(), LEAST))

    def forget(self, service: NamespacedName) -> bytes:
        """It has all its ports again, or others. Returns what was kept of them."""
        if service not in self.reduced:
            return b""
        self.reduced.remove(service)
        self.left_out -= self.ports[service] - LEAST
        packed = self.kept.pop(service, b"")
        self.kept_bytes -= len(packed)
        return packed


class PortShares:
    """In memory only; not thread-safe. `most`: ports of a namespace, where that is less than in any mode."""

    def __init__(self, most: int = sys.maxsize) -> None:
        self._most = most
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
        most = min(self._most, MOST_OF_NAMESPACE)
        space = self._namespaces.setdefault(service.namespace, _Namespace(most))
        was_over = space.total > most
        space.forget(service)
        space.total += len(ports) - space.ports.pop(service, 0)
        if ports:
            space.ports[service] = len(ports)
        if was_over or space.total > most:
            self._changed.add(service.namespace)
        elif not space.ports:
            del self._namespaces[service.namespace]
        return ports if space.may_have_all(service) else space.reduce(service, ports)

    def bound(
        self, ports_of: Callable[[NamespacedName], Ports], *, some: bool = False
    ) -> tuple[dict[NamespacedName, Ports], list[Problem]]:
        """Share out anew. `ports_of`: all those of a Service that is not reduced. Returns who has more of them now, or
        fewer. `some`: of very many that come back only a part, and more are found when it is asked again."""
        room = _MOST_BACK if some else sys.maxsize
        found: dict[NamespacedName, Ports] = {}
        problems: list[Problem] = []
        changed, self._changed = self._changed, set()
        for name in changed:
            space = self._namespaces.get(name)
            if space is None:
                continue
            over = space.over()
            for service in sorted(space.reduced - over):  # first, as this makes room for what the others lack
                if service not in space.kept:
                    continue
                if room <= 0:
                    self._changed.add(name)
                    break
                found[service] = dict(_unpacked(space.forget(service), ports_of(service)))
                room -= len(found[service])
            for service in sorted(over - space.reduced):
                found[service] = space.reduce(service, ports_of(service))
            if new := space.reduced - space.reported:
                which = first_of(sorted(one.name for one in new), _SHOWN)
                text = f"all ports but the first {LEAST} are left out of {which}: its Services have too many together"
                problems.append(Problem(f"Namespace {name}", text))
            space.reported = frozenset(space.reduced)
            if not space.ports:
                del self._namespaces[name]
        return found, problems


def _packed(ports: Ports) -> bytes:
    return compact([[key.port, key.protocol, one.port, one.node_port] for key, one in ports.items()]).encode()


def _unpacked(packed: bytes, some: Ports) -> Iterator[tuple[ServicePortName, ServicePort]]:
    """All ports of a Service by some of them: what else these have is the same for all."""
    like = next(iter(some.values()))
    for name, protocol, number, node_port in decode(packed):
        key = ServicePortName(like.name.service, name, protocol)
        yield key, replace(like, name=key, port=number, node_port=node_port)
