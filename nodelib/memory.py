"""A daemon's resident memory: what was needed for a burst goes back to the kernel, what start-up made is left alone.

Linux with glibc; elsewhere the allocator is left as it is.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc

from nodelib.clock import Clock

# malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_ARENAS = 1  # more of them are for threads that allocate at once, and only one of ours runs Python at a time
_LARGE = 256 * 1024  # bytes; whatever is larger has a mapping of its own and goes back when it is freed
_TRIM_INTERVAL = 30.0  # seconds
_START = 5.0  # seconds in which a start is over, its pods taken up


def settle_allocator() -> None:
    """To be called before the first thread starts."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_ARENA_MAX, _ARENAS)
        libc.mallopt(_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_TRIM_THRESHOLD, _LARGE)


def rest_collector() -> None:
    """To be called before the imports: what they make stays, looking through it for cycles is a tenth of a start."""
    gc.disable()


def settle_collector() -> None:
    """To be called when start-up is over: modules, classes and parts are never looked at again for cycles, so that full
    collections are cheap, come soon, and leave no burst's garbage behind."""
    gc.collect()
    gc.freeze()
    gc.enable()


async def keep_trimmed(clock: Clock) -> None:
    """Until cancelled: settle the collector once the start is over, then give free memory back every now and then
    (malloc_trim, a millisecond or two)."""
    libc = _glibc()
    await clock.sleep(_START)
    settle_collector()
    while True:
        await clock.sleep(_TRIM_INTERVAL)
        if libc is not None:
            await asyncio.to_thread(libc.malloc_trim, 0)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
