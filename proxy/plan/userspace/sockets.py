"""How many sockets the Services of a namespace, and all Services, may have in userspace mode. Pure.

Each takes a port of the node, of those from which the node's own programs connect: with all of them taken by listening
sockets, no agent of the node reaches the API server any more. Upstream has no limit.
"""

from __future__ import annotations

from collections import Counter

from proxy.model import Problem
from proxy.plan.userspace.portals import SocketName

MOST_OF_NAMESPACE = 2048
MOST = 12_288  # of one protocol; there are 28,232 ports unless net.ipv4.ip_local_port_range says otherwise


class Sockets:
    """Counts those that are open."""

    def __init__(self) -> None:
        self._namespaces: Counter[tuple[str, str]] = Counter()  # by namespace and protocol
        self._all: Counter[str] = Counter()

    def problem(self, name: SocketName) -> Problem | None:
        """Why there is no room for this one, None if there is."""
        protocol, namespace = name.port.protocol, name.port.service.namespace
        if self._namespaces[namespace, protocol] >= MOST_OF_NAMESPACE:
            return Problem(
                f"Namespace {namespace}", f"its Services have more than {MOST_OF_NAMESPACE} {protocol} ports"
            )
        if self._all[protocol] >= MOST:
            return Problem(f"Service {name}", f"all Services have {MOST} {protocol} ports already")
        return None

    def add(self, name: SocketName, by: int) -> None:
        """One more (1), or one less (-1)."""
        self._namespaces[name.port.service.namespace, name.port.protocol] += by
        self._all[name.port.protocol] += by
