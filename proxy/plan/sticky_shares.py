"""How many addresses with session affinity the Services of a namespace may have together, in nftables mode. Pure.

The clients of all of them are in one map of the kernel, an entry for each client of each address and port, for up to a
day. With 90,000 sticky ports three pods filled it, and the clients of no other Service were remembered any more. The
pods of a node are some hundreds: with this bound those of one namespace leave room.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from proxy.model import NamespacedName, Problem, ServicePort

MOST_OF_NAMESPACE = 512
_OF_NODE = 2  # addresses of the node, roughly, at which a NodePort is reached


class StickyShares:
    """In memory only; not thread-safe. Whoever comes first has room; the others have it when they are written again."""

    def __init__(self, most: int = MOST_OF_NAMESPACE) -> None:
        self._most = most
        self._used: dict[NamespacedName, int] = {}
        self._lacking: set[NamespacedName] = set()
        self._namespaces: Counter[str] = Counter()

    def lacks(self, service: NamespacedName) -> bool:
        """Whether it found no room for all of its ports."""
        return service in self._lacking

    def fitting(self, service: NamespacedName, ports: list[ServicePort]) -> tuple[list[ServicePort], list[Problem]]:
        """All ports of the Service as they may be; none: it is gone."""
        if service not in self._used and not any(port.affinity_seconds for port in ports):
            self._lacking.discard(service)
            return ports, []
        self._namespaces[service.namespace] -= self._used.pop(service, 0)
        room, used, lacking = self._most - self._namespaces[service.namespace], 0, 0
        found = []
        for port in ports:
            wanted = _frontends(port) if port.affinity_seconds else 0
            if used + wanted > room:
                port, wanted, lacking = replace(port, affinity_seconds=0), 0, lacking + 1
            used += wanted
            found.append(port)
        self._lacking.discard(service)
        if lacking:
            self._lacking.add(service)
        if used:
            self._used[service] = used
            self._namespaces[service.namespace] += used
        elif not self._namespaces[service.namespace]:
            del self._namespaces[service.namespace]
        text = (
            f"{lacking} ports have no session affinity: the Services of its namespace have it at {self._most} addresses"
        )
        return found, [Problem(f"Service {service}", text)] if lacking else []


def _frontends(port: ServicePort) -> int:
    return 1 + port.address_count + (_OF_NODE if port.node_port else 0)
