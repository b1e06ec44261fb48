"""How often the statuses of large pods are written.

The API server answers each of them with the whole pod, and tells it again as an event of the watch. A pod of a megabyte
takes a tenth of a second of the event loop that way, and one whose readiness comes and goes every second: ten of them
would leave nothing of the loop to the pods of others.
"""

from __future__ import annotations

from nodelib.clock import Clock

SMALL = 64 * 1024  # bytes of a pod as JSON, for which nothing is counted
RATE = 2 * 1024 * 1024  # bytes a second of the large pods of a namespace: a fifth of the loop's time at most
BURST = 16 * 1024 * 1024  # bytes at once, after a while without
_MOST_KEPT = 256  # namespaces that owe nothing


class StatusTurns:
    """Of the pods of all namespaces; each has its own turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._paid: dict[str, float] = {}  # by namespace: when all that it wrote will be paid for (monotonic)

    async def wait(self, namespace: str, size: int) -> bool:
        """Until a pod of `size` bytes may be written, 0: not known yet. Whether that took a while. To be charged at
        once, before others have waited, too."""
        waited = False
        while size > SMALL and (left := self._owed(namespace) - BURST / RATE) > 0:
            waited = True
            await self._clock.sleep(left)
        return waited

    def charge(self, namespace: str, size: int) -> None:
        """So many bytes are written."""
        if size <= SMALL:
            return
        self._paid[namespace] = self._clock.monotonic() + self._owed(namespace) + size / RATE
        if len(self._paid) > _MOST_KEPT:
            self._paid = {name: paid for name, paid in self._paid.items() if paid > self._clock.monotonic()}

    def _owed(self, namespace: str) -> float:
        """Seconds."""
        return max(0.0, self._paid.get(namespace, 0.0) - self._clock.monotonic())
