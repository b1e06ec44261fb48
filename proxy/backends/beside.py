"""Where a change is planned: a small one on the event loop, which is quicker, any other in a thread beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from nodelib.threads import in_thread_if

T = TypeVar("T")

# Up to this, planning takes a few milliseconds and needs no thread.
_PORTS = 20
_SIZE = 1000  # pairs of an address and an endpoint; one port may have a hundred thousand


async def planned(plan: Callable[[], T], *, ports: int, size: Callable[[], int]) -> T:
    """What `plan` returns. `ports`: how many changed; `size()`: of what they are and were, see `Desired.size`."""
    return await in_thread_if(ports > _PORTS or size() > _SIZE, plan)
