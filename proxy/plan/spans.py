"""What the span of a sync says, and how much of it. Pure.

Names of Services are strangers' words: a few of them, and the number of the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from proxy.model import NamespacedName
from proxy.plan.tracker import Changes

SYNC = "syncProxyRules"  # upstream's function, and the name of its metrics
PROGRAMMING = "network programming"  # upstream's network_programming_duration_seconds
NAMED = 8  # Services of one sync
_MOST_PROGRAMMED = 32  # Services whose network programming is told for one sync


def attributes(changes: Changes, *, full: bool, endpoints: int, mode: str) -> dict[str, str | int]:
    """`endpoints`: of how many Services the EndpointSlices changed."""
    services = {name.service for name in changes.ports}
    return {
        "nodewright.proxy.mode": mode,
        "network.type": changes.desired.family.lower(),
        "nodewright.sync": "full" if full else "partial",
        "nodewright.services": len(services),
        "nodewright.services.names": named(services),
        "nodewright.endpoints": endpoints,
        "nodewright.ports": len(changes.ports),
    }


def named(services: Iterable[NamespacedName]) -> str:
    """The first few by name, and how many there are more."""
    known = list(services)
    first = ", ".join(map(str, heapq.nsmallest(NAMED, known)))
    return f"{first} and {len(known) - NAMED} more" if len(known) > NAMED else first


def programmed(changes: Changes) -> Iterator[tuple[NamespacedName, float]]:
    """Services whose endpoints changed, each with the wall time at which that began; those that waited longest."""
    since = sorted((min(times), service) for service, times in changes.triggers.items() if times)
    return ((service, time) for time, service in since[:_MOST_PROGRAMMED])
