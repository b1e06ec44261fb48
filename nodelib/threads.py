"""Blocking work that may never come back, in a thread of its own.

asyncio.to_thread shares a few threads (cores + 4) with everything else in the process: as many calls that hang in the
kernel, on the file system of a server that is gone, and nothing that needs a thread goes on. It also waits for them
when the process ends. Work on what users mount goes this way instead: it can hold up only those who wait for it.
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
    """What `work` returns or raises. Cancelled, it leaves the thread to its end, as to_thread does."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def told(result: T | None, error: BaseException | None) -> None:
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
        with contextlib.suppress(RuntimeError):  # the loop has been closed: nobody waits any more
            loop.call_soon_threadsafe(told, result, failed)

    # Not threading.Thread: its start() holds up the loop until the thread has come to run, milliseconds on a busy node.
    _thread.start_new_thread(run, ())
    return await answer
