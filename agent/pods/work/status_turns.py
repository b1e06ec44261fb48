"""How often the statuses of large pods are written.

The API server answers each of them with the whole pod, and tells it again as an event of the watch. A pod of a megabyte
takes a tenth of a second of the event loop that way, and one whose readiness comes and goes every second: ten of them
would leave nothing of the loop to the pods of others.
"""

from __future__ import annotations

from nodelib.clock import Clock
from nodelib.namespace_allowance import NamespaceAllowance

SMALL = 64 * 1024  # bytes of a pod as JSON, for which nothing is counted
RATE = 2 * 1024 * 1024  # bytes a second of the large pods of a namespace: a fifth of the loop's time at most
BURST = 16 * 1024 * 1024  # bytes at once, after a while without
_MOST_KEPT = 256  # namespaces that owe nothing


class StatusTurns:
    """Of the pods of all namespaces; each has its own turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._allowance = clock, NamespaceAllowance(BURST, RATE, _MOST_KEPT)

    async def wait(self, namespace: str, size: int) -> bool:
        """Until a pod of `size` bytes may be written, 0: not known yet. Whether that took a while. To be charged at
        once, before others have waited, too."""
        waited = False
        while size > SMALL and (left := self._allowance.wait(namespace, self._clock.monotonic())) > 0:
            waited = True
            await self._clock.sleep(left)
        return waited

    def charge(self, namespace: str, size: int) -> None:
        """So many bytes are written."""
        if size > SMALL:
            self._allowance.spend(namespace, size, self._clock.monotonic())
