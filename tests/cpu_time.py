"""The CPU time of work that must not hold an event loop, where the old way took several times the bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def least(work: Callable[[], _T], tries: int = 3) -> tuple[float, _T]:
    """Seconds of the quickest of some tries, and what work() gave. Other processes have the caches, and the garbage
    collector walks the objects of all tests: one try may take several times as long as it would alone."""
    times = []
    for _ in range(tries):
        began = time.thread_time()
        found = work()
        times.append(time.thread_time() - began)
    return min(times), found
