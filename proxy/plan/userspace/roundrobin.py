"""Round robin with session affinity (roundrobin.go of Kubernetes 1.25). Time is a parameter."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from proxy.plan.userspace.portals import Pool

Address = tuple[str, int]

# Clients that are remembered for the Services of a namespace together, for up to a day each. Whoever reaches one
# chooses how many addresses a forged packet, or a connection over IPv6, may come from. Upstream has no limit.
MOST_CLIENTS = 65_536


@dataclass(slots=True)
class Clients:
    """How many are remembered for the Services of a namespace."""

    count: int = 0


class RoundRobin:
    """The endpoints of one socket, in turn. In memory only: after a restart every client is a new one.

    `clients`: those of its namespace. When there are too many, the one that has not been seen for longest gives way.
    """

    def __init__(self, clients: Clients | None = None) -> None:
        self._pool = Pool(())
        self._addresses: tuple[Address, ...] = ()
        self._next = 0
        self._of_namespace = clients or Clients()
        # In the order in which they were seen last.
        self._clients: OrderedDict[str, tuple[Address, float]] = OrderedDict()

    def replace(self, pool: Pool) -> None:
        """Use other endpoints. A client whose endpoint is gone becomes a new client."""
        before, self._pool, self._addresses = self._addresses, pool, pool.addresses
        left = set(self._addresses) if pool.affinity_seconds else set()
        if not left.issuperset(before):
            kept = OrderedDict((client, known) for client, known in self._clients.items() if known[0] in left)
            self._of_namespace.count -= len(self._clients) - len(kept)
            self._clients = kept

    def choose(self, client: str, now: float, *, reset_affinity: bool = False) -> Address | None:
        """The endpoint for `client`, None when there is none.

        `now` in monotonic seconds. `reset_affinity`: choose another one, since the last did not answer.
        """
        if not self._addresses:
            return None
        seconds = self._pool.affinity_seconds
        if seconds:
            known = self._clients.get(client)
            if known is not None and not reset_affinity and now - known[1] < seconds:
                self._remember(client, known[0], now)
                return known[0]
        address = self._addresses[self._next % len(self._addresses)]
        self._next = (self._next + 1) % len(self._addresses)
        if seconds:
            self._remember(client, address, now)
        return address

    def expire(self, now: float) -> None:
        """Drop clients whose affinity has expired."""
        while self._clients and now - next(iter(self._clients.values()))[1] >= self._pool.affinity_seconds:
            self._forget_first()

    def close(self) -> None:
        """It is used no more."""
        self._of_namespace.count -= len(self._clients)
        self._clients.clear()

    def _remember(self, client: str, address: Address, now: float) -> None:
        if client in self._clients:
            self._clients.move_to_end(client)
        elif self._of_namespace.count < MOST_CLIENTS:
            self._of_namespace.count += 1
        elif self._clients:
            self._clients.popitem(last=False)
        else:
            return  # other Services of its namespace have all
        self._clients[client] = (address, now)

    def _forget_first(self) -> None:
        self._clients.popitem(last=False)
        self._of_namespace.count -= 1
