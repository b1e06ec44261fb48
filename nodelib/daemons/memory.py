"""Keeps a daemon's resident memory small: memory of a burst goes back to the kernel, start-up objects are not scanned.

Works with glibc on Linux; elsewhere the allocator is left as it is.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc

from nodelib.clock import Clock

# malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_ARENAS = 1  # more are useful only for threads that allocate at the same time, and only one runs Python
_LARGE = 256 * 1024  # bytes; larger blocks get their own mapping, which goes back when it is freed
_TRIM_INTERVAL = 30.0  # seconds
_START = 5.0  # seconds after which the start is over and existing pods are adopted
_THRESHOLDS = (700, 10, 10)  # CPython's own; a command that is short by itself begins with others (cli/__main__.py)


def settle_allocator() -> None:
    """Configure malloc. Call it before the first thread starts."""
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_ARENA_MAX, _ARENAS)
        libc.mallopt(_MMAP_THRESHOLD, _LARGE)
        libc.mallopt(_TRIM_THRESHOLD, _LARGE)


def rest_collector() -> None:
    """Switch the garbage collector off. Call it before the imports: scanning objects takes a tenth of the start."""
    gc.disable()


def settle_collector() -> None:
    """Call it when start-up is over: modules and classes are never scanned again.

    So full collections are cheap and frequent, and leave no garbage of a burst behind.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()


async def keep_trimmed(clock: Clock) -> None:
    """Until cancelled: settle the collector once the start is over, then return free memory every 30 seconds.

    malloc_trim takes a millisecond or two.
    """
    libc = _glibc()
    gc.freeze()  # the imports' objects: to look at all of them later would hold up the loop for 50 ms
    await clock.sleep(_START)
    settle_collector()
    while True:
        await clock.sleep(_TRIM_INTERVAL)
        if libc is not None:
            await asyncio.to_thread(libc.malloc_trim, 0)


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
