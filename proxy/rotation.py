"""Round robin with session affinity (upstream 1.25 pkg/proxy/userspace/roundrobin.go). Time is a parameter."""

from __future__ import annotations

from proxy.plan.userspace import Pool

Address = tuple[str, int]


class Rotation:
    """Of one socket. In memory only: after a restart every client is new."""

    def __init__(self) -> None:
        self._pool = Pool(())
        self._addresses: tuple[Address, ...] = ()
        self._next = 0
        self._clients: dict[str, tuple[Address, float]] = {}

    def replace(self, pool: Pool) -> None:
        """The endpoints changed; clients of one that is gone are new clients."""
        self._pool, self._addresses = pool, pool.addresses
        left = set(self._addresses) if pool.affinity_seconds else set()
        self._clients = {client: known for client, known in self._clients.items() if known[0] in left}

    def choose(self, client: str, now: float, *, afresh: bool = False) -> Address | None:
        """The endpoint for `client`, None without any. `afresh`: the one it had did not answer. `now` in seconds."""
        if not self._addresses:
            return None
        seconds = self._pool.affinity_seconds
        if seconds:
            known = self._clients.get(client)
            if known is not None and not afresh and now - known[1] < seconds:
                self._clients[client] = (known[0], now)
                return known[0]
        address = self._addresses[self._next % len(self._addresses)]
        self._next = (self._next + 1) % len(self._addresses)
        if seconds:
            self._clients[client] = (address, now)
        return address

    def expire(self, now: float) -> None:
        """Forget clients whose time is over."""
        seconds = self._pool.affinity_seconds
        self._clients = {client: known for client, known in self._clients.items() if now - known[1] < seconds}
