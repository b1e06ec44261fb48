"""The pause between two tries: grows with each failure, starts over after a success."""

from __future__ import annotations

import random


class Backoff:
    """Seconds: `first`, then `growth` times the one before, at most `longest`.

    `jitter` 0.2: each pause is multiplied by a random factor of 0.8 to 1.2, so that callers that failed together do not
    retry together.
    """

    def __init__(self, first: float, longest: float, *, growth: float = 2.0, jitter: float = 0.0) -> None:
        self._first, self._longest, self._growth, self._jitter = first, longest, growth, jitter
        self.current = first

    def next(self, asked: float | None = None) -> float:
        """The pause to make now, in seconds. The following one is longer.

        `asked`: seconds that the other side asked for (Retry-After); the pause is not shorter.
        """
        pause = max(self.current, asked or 0.0)
        self.current = min(self.current * self._growth, self._longest)
        return pause * random.uniform(1 - self._jitter, 1 + self._jitter) if self._jitter else pause

    def reset(self) -> None:
        """Start over after a success."""
        self.current = self._first
