"""A token bucket (client-go's util/flowcontrol): for those who refuse what is too much, and for those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class TokenBucket:
    """Holds `burst` tokens, is full at first and gains `rate` tokens a second (> 0). `monotonic()` in seconds."""

    def __init__(self, rate: float, burst: int, monotonic: Callable[[], float]) -> None:
        self._rate, self._burst, self._monotonic = rate, burst, monotonic
        self._tokens, self._since = float(burst), monotonic()

    def take(self) -> bool:
        """Take one token; False: there is less than one."""
        self._fill()
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def reserve(self) -> float:
        """Take one token, if need be one that is still to come: in how many seconds."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def give_back(self) -> None:
        """Whoever reserved a token does not wait for it any more."""
        self._tokens += 1

    def _fill(self) -> None:
        now = self._monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._rate)
        self._since = now


class RateLimiter:
    """Lets callers through in the order in which they come, as fast as the bucket has tokens."""

    def __init__(self, bucket: TokenBucket, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._bucket, self._sleep = bucket, sleep

    async def wait(self) -> float:
        """Until it is the caller's turn. Returns the seconds that it took."""
        pause = self._bucket.reserve()
        if pause:
            try:
                await self._sleep(pause)
            except asyncio.CancelledError:
                self._bucket.give_back()
                raise
        return pause
