"""One directory followed by inotify, even while it is removed and created again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from agent.common.edge.inotify import Inotify, Watch
from nodelib.errors import Temporary

_SETTLE = 0.3  # seconds that a writer may take between its first byte and its close
_QUIET = 0.05
_ABSENT_INTERVAL = 1.0  # seconds between checks for a directory that does not exist, as upstream


class FolderWatch:
    """`folder()` gives the path, which may change. Create it inside the running loop; end it with close()."""

    def __init__(self, folder: Callable[[], str]) -> None:
        self._folder = folder
        self._inotify: Inotify | None = None
        self._watch: Watch | None = None
        self._identity: tuple[int, int] | None = None
        self.last_error = ""

    def renew(self) -> None:
        """Follow the directory that exists now. Call it before reading the directory, so that no change is missed."""
        try:
            status = os.stat(self._folder())
        except OSError:
            self._drop()
            return
        identity = status.st_dev, status.st_ino
        if identity == self._identity:
            return
        self._drop()
        try:
            self._inotify = self._inotify or Inotify("static pods")
            self._watch = self._inotify.watch(self._folder(), keeps_names=True)
        except Temporary as error:
            self.last_error = str(error)
            return
        self._identity, self.last_error = identity, ""

    async def wait(self, timeout: float) -> frozenset[str]:
        """Wait up to `timeout` seconds for a change whose writer seems done. Returns the deleted names."""
        watch = self._watch  # close() may come meanwhile
        if watch is None:
            await asyncio.sleep(min(timeout, _ABSENT_INTERVAL))
            return frozenset()
        loop = asyncio.get_running_loop()
        closed, began = await watch.wait(timeout), loop.time()
        while not closed and loop.time() - began < min(_SETTLE, timeout):
            before = loop.time()
            closed = await watch.wait(_QUIET)
            if loop.time() - before >= _QUIET:
                break
        return watch.take_deleted()

    async def close(self) -> None:
        self._drop()
        if self._inotify is not None:
            self._inotify.close()
            self._inotify = None

    def _drop(self) -> None:
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
        self._watch, self._identity = None, None
