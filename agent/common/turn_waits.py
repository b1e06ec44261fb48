"""How long a request to a pod has waited for its turn. That is the node's time: it does not count against the pod."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class TurnWaits:
    """Of one request, which the task that makes it carries along."""

    def __init__(self) -> None:
        self._ended, self._since = 0.0, 0.0
        self._is_waiting = False

    def seconds(self) -> float:
        """Until now."""
        return self._ended + (_now() - self._since if self._is_waiting else 0.0)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self._since, self._is_waiting = _now(), True
        try:
            yield
        finally:
            self._ended, self._is_waiting = self.seconds(), False


_CURRENT: ContextVar[TurnWaits | None] = ContextVar("the waits of the request that is made", default=None)


@contextmanager
def counted() -> Iterator[TurnWaits]:
    """Tasks that are begun inside note their waits there."""
    found = TurnWaits()
    before = _CURRENT.set(found)
    try:
        yield found
    finally:
        _CURRENT.reset(before)


@contextmanager
def waiting() -> Iterator[None]:
    """Inside, the request waits for its turn."""
    found = _CURRENT.get() or TurnWaits()
    with found.waiting():
        yield


def _now() -> float:
    return asyncio.get_running_loop().time()
