"""Round robin with session affinity (roundrobin.go of Kubernetes 1.25). Time is a parameter."""

from __future__ import annotations

from proxy.plan.userspace.portals import Pool

Address = tuple[str, int]


class RoundRobin:
    """The endpoints of one socket, in turn. In memory only: after a restart every client is a new one."""

    def __init__(self) -> None:
        self._pool = Pool(())
        self._addresses: tuple[Address, ...] = ()
        self._next = 0
        self._clients: dict[str, tuple[Address, float]] = {}

    def replace(self, pool: Pool) -> None:
        """Use other endpoints. A client whose endpoint is gone becomes a new client."""
        self._pool, self._addresses = pool, pool.addresses
        left = set(self._addresses) if pool.affinity_seconds else set()
        self._clients = {client: known for client, known in self._clients.items() if known[0] in left}

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
                self._clients[client] = (known[0], now)
                return known[0]
        address = self._addresses[self._next % len(self._addresses)]
        self._next = (self._next + 1) % len(self._addresses)
        if seconds:
            self._clients[client] = (address, now)
        return address

    def expire(self, now: float) -> None:
        """Drop clients whose affinity has expired."""
        seconds = self._pool.affinity_seconds
        self._clients = {client: known for client, known in self._clients.items() if now - known[1] < seconds}
