"""The threads that everything in a process shares (asyncio.to_thread), to see what is given to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class SharedThreads(ThreadPoolExecutor):
    """Those of the running loop from now on. `given` counts the pieces of work."""

    def __init__(self) -> None:
        super().__init__(2)
        self.given = 0
        asyncio.get_running_loop().set_default_executor(self)

    def submit(self, work: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        self.given += 1
        return super().submit(work, *args, **more)
