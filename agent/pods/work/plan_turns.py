"""How much of the event loop's time the plans and statuses of large pods take.

Both are made of the whole pod at each change of any of it, a tenth of a second with 2,000 containers, and the readiness
of each may come and go every second. Upstream makes them beside those of its other pods, on all cores.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakValueDictionary

from nodelib.loop_share import LoopShare

LARGE = 0.005  # seconds of CPU; for what takes less, as with 20 containers at their start, nothing is counted
SHARE = 0.2  # of the loop's time, all large pods of a namespace together
_AT_ONCE = 0.5  # seconds, after a while without


class PlanTurns:
    """Of the pods of all namespaces; each has its own share.

    `cpu`: the seconds that the loop's thread has used. On a busy machine, a plan of a millisecond may last a hundred.
    """

    def __init__(self, cpu: Callable[[], float] = time.thread_time) -> None:
        self._cpu = cpu
        self._shares: WeakValueDictionary[str, LoopShare] = WeakValueDictionary()

    def of(self, namespace: str) -> PlanTurn:
        """For the worker of a pod of this namespace."""
        return PlanTurn(self._shares.setdefault(namespace, LoopShare(SHARE, SHARE * _AT_ONCE)), self._cpu)


class PlanTurn:
    """Of one pod: wait(), then begin() and end() around each plan and status.

    `urgent`: nothing waits until the next plan, as with a pod that is not large. It counts all the same.
    """

    def __init__(self, share: LoopShare, cpu: Callable[[], float]) -> None:
        self._share, self._cpu = share, cpu
        self._began, self._is_large = 0.0, False
        self.urgent = asyncio.Event()

    async def wait(self) -> None:
        while self._is_large and not self.urgent.is_set() and (left := self._share.left) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.urgent.wait()

    def begin(self) -> None:
        self._began = self._cpu()

    def end(self) -> None:
        took = self._cpu() - self._began
        self._is_large = took > LARGE
        if self._is_large:
            self._share.charge(took)
