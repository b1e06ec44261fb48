"""Work that may have only a part of the event loop's time: what it takes is paid for with rests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass


@dataclass(slots=True, weakref_slot=True)
class LoopShare:
    """`share`: the part of the loop's time. Seconds up to `unpaid` need no rest yet."""

    share: float
    unpaid: float
    owed: float = 0.0  # seconds for which no rest was made
    rests_until: float = 0.0  # of the loop's clock

    def charge(self, seconds: float) -> None:
        """The work has taken so much more."""
        self.owed += seconds
        if self.owed > self.unpaid:
            begin = max(asyncio.get_running_loop().time(), self.rests_until)
            self.rests_until = begin + self.owed / self.share - self.owed
            self.owed = 0.0

    @property
    def left(self) -> float:
        """Seconds of the rest, not above 0 when the work may go on."""
        return self.rests_until - asyncio.get_running_loop().time()

    async def rest(self) -> None:
        """Until the work may go on."""
        while (left := self.left) > 0:
            await asyncio.sleep(left)
