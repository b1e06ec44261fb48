"""How many ports the Services of a namespace may have together. Pure.

A Service may have 20,000 ports, each of which takes a kilobyte or two of every proxy. Those that have many and find no
room keep their first ones. Their objects are kept as text meanwhile, to be read again when there is room.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from nodelib.json_values import Json, compact, decode
from proxy.model import NamespacedName

MOST_OF_NAMESPACE = 100_000
LEAST = 16  # ports of any Service, however many others take


@dataclass(slots=True)
class _Namespace:
    """Its Services by how many ports they have; `kept`: those of whom there may be fewer, as text."""

    ports: dict[NamespacedName, int] = field(default_factory=dict)
    total: int = 0
    kept: dict[NamespacedName, str] = field(default_factory=dict)
    cut: frozenset[NamespacedName] = frozenset()

    def over(self) -> frozenset[NamespacedName]:
        """Those for whom there is no room; whoever has little comes first, and the same ones on every node."""
        if self.total <= MOST_OF_NAMESPACE:
            return frozenset()
        left, found = MOST_OF_NAMESPACE, set()
        for service, count in sorted(self.ports.items(), key=lambda one: (one[1], one[0])):
            if count > left and count > LEAST:
                found.add(service)
            left -= LEAST if service in found else count
        return frozenset(found)


class PortShares:
    """In memory only; not thread-safe."""

    def __init__(self) -> None:
        self._namespaces: defaultdict[str, _Namespace] = defaultdict(_Namespace)

    def put(self, service: NamespacedName, ports: int, obj: Json) -> list[Json]:
        """The Service has so many ports now, 0: it is gone. Returns others, of which there may be more or fewer."""
        space = self._namespaces[service.namespace]
        space.total += ports - space.ports.pop(service, 0)
        space.kept.pop(service, None)
        if ports:
            space.ports[service] = ports
        if ports > LEAST:
            space.kept[service] = compact({key: obj.get(key) for key in ("metadata", "spec", "status")})
        before, space.cut = space.cut, space.over()
        if not space.ports:
            del self._namespaces[service.namespace]
        others = sorted((before ^ space.cut) - {service})
        return [decode(space.kept[one]) for one in others if one in space.kept]

    def is_cut(self, service: NamespacedName) -> bool:
        space = self._namespaces.get(service.namespace)
        return space is not None and service in space.cut
