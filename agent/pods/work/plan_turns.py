"""How much of the event loop's time the plans and statuses of large pods take.

Both are made of the whole pod at each change of any of it, a tenth of a second with 2,000 containers, and the readiness
of each may come and go every second. Upstream makes them beside those of its other pods, on all cores.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from weakref import WeakValueDictionary

from nodelib.loop_share import LoopShare

LARGE = 0.005  # seconds of CPU; for what takes less, as with 20 containers at their start, nothing is counted
SHARE = 0.2  # of the loop's time, all large pods of a namespace together
SHARE_OF_ENDS = 0.3  # beside it, for the plans that end such pods: others of the namespace do not hold those up
_AT_ONCE = 0.5  # seconds, after a while without


class PlanTurns:
    """Of the pods of all namespaces; each has its own share.

    `cpu`: the seconds that the loop's thread has used. On a busy machine, a plan of a millisecond may last a hundred.
    """

    def __init__(self, cpu: Callable[[], float]) -> None:
        self._cpu = cpu
        self._shares: WeakValueDictionary[tuple[str, float], LoopShare] = WeakValueDictionary()

    def of(self, namespace: str) -> PlanTurn:
        """For the worker of a pod of this namespace."""
        return PlanTurn(self._share(namespace, SHARE), self._share(namespace, SHARE_OF_ENDS), self._cpu)

    def _share(self, namespace: str, share: float) -> LoopShare:
        return self._shares.setdefault((namespace, share), LoopShare(share, share * _AT_ONCE))


class PlanTurn:
    """Of one pod: wait(), then begin() and end() around each plan and status.

    `urgent`: until the next plan, the pod has a part in the share of `ends`.
    """

    def __init__(self, share: LoopShare, ends: LoopShare, cpu: Callable[[], float]) -> None:
        self._share, self._ends, self._cpu = share, ends, cpu
        self._began, self._charged, self._is_large = 0.0, share, False
        self.urgent = asyncio.Event()

    def urgent_after(self, steps: Iterable[asyncio.Task[None]]) -> None:
        """Once all of these have ended."""
        left = set(steps)

        def ended(step: asyncio.Task[None]) -> None:
            left.discard(step)
            if not left:
                self.urgent.set()

        for step in tuple(left):
            step.add_done_callback(ended)

    async def wait(self) -> None:
        """A pod that is not large waits for nobody."""
        while self._is_large and not self.urgent.is_set() and (left := self._share.left) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.urgent.wait()
        if self._is_large and self.urgent.is_set():
            await self._ends.rest()

    def begin(self) -> None:
        self._began, self._charged = self._cpu(), self._ends if self.urgent.is_set() else self._share

    def end(self) -> None:
        took = self._cpu() - self._began
        self._is_large = took > LARGE
        if self._is_large:
            self._charged.charge(took)
