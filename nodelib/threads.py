"""Work in threads: what may never return in one of its own, what is long in one that is shared.

asyncio.to_thread shares a few threads (cores + 4) with the whole process. Once that many calls hang in the kernel, on
the file system of a server that is gone, nothing else gets a thread, and the process waits for them when it ends. Work
on volumes that users mount runs here instead, where it blocks only its own callers.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def alone(work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns or raises. If cancelled, the thread runs to its end, as with to_thread."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        failed: BaseException | None = None
        try:
            result = context.run(work, *args, **kwargs)
        except BaseException as error:
            failed = error
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody is waiting
            loop.call_soon_threadsafe(deliver, result, failed)

    # Not threading.Thread: its start() blocks the loop until the thread runs, milliseconds on a busy node.
    _thread.start_new_thread(run, ())
    return await answer


async def in_thread_if(long: bool, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What `work` returns or raises. Long work would hold up the loop; for short work a thread costs more than it."""
    return await asyncio.to_thread(work, *args, **kwargs) if long else work(*args, **kwargs)
