"""Which ports of one Service are taken first, where the endpoints of very many have changed. Pure.

A Service may have 400,000 pairs of endpoints and ports, and whoever writes its EndpointSlices can change all of them
again and again: taken at once they hold up everybody's rules, for minutes in iptables mode.
"""

from __future__ import annotations

from collections.abc import Mapping

from proxy.model import NamespacedName, ServicePortName


class Parts:
    """In memory only; not thread-safe."""

    def __init__(self) -> None:
        self._last: dict[NamespacedName, ServicePortName] = {}  # of the Services that have more

    def next(self, service: NamespacedName, sizes: Mapping[ServicePortName, int], most: int) -> list[ServicePortName]:
        """So many of the ports as have `most` pairs together, and one at least. `sizes`: of all that have changed."""
        last = self._last.pop(service, None)
        found: list[ServicePortName] = []
        # The first ones may have changed again since: the others would never be taken.
        for name in sorted(sizes, key=lambda one: (last is not None and one <= last, one)):
            most -= sizes[name]
            if found and most < 0:
                self._last[service] = found[-1]
                break
            found.append(name)
        return found

    def forget(self, service: NamespacedName) -> None:
        """All of its ports are taken."""
        self._last.pop(service, None)
