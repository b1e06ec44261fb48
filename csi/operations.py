"""Calls that outlive their callers: one at a time for each volume or snapshot.

A caller that gives up (its deadline passed, its process was killed) asks again, while mkfs or a copy still runs. So the
work belongs to the driver and not to the call, and whoever asks meanwhile is told to come back (the specification's
ABORTED).
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Coroutine
from typing import Any

from nodelib.errors import NodewrightError, Permanent
from nodelib.json_values import Json
from nodelib.plugin_apis.errors import Refused

log = logging.getLogger(__name__)

_END = 8.0  # seconds for calls that are under way when the driver stops
PATIENCE = 10.0
"""Seconds after which a caller is told to come back: a provisioner has ten calls at a time for all claims of a node."""
_CODES = {
    errno.ENOSPC: "RESOURCE_EXHAUSTED",
    errno.EDQUOT: "RESOURCE_EXHAUSTED",
    errno.EFBIG: "OUT_OF_RANGE",
    errno.EBUSY: "FAILED_PRECONDITION",
    errno.EINVAL: "INVALID_ARGUMENT",
    errno.ENOTDIR: "INVALID_ARGUMENT",
    errno.ELOOP: "INVALID_ARGUMENT",
    errno.ENAMETOOLONG: "INVALID_ARGUMENT",
}


class Operations:
    """Owns the work of all calls that change something."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[Json]] = {}

    async def run(self, key: str, work: Coroutine[Any, Any, Json], patience: float | None = None) -> Json:
        """The answer of `work`. Raises Refused: ABORTED while other work for `key` is under way, and if it takes longer
        than `patience`.
        """
        if key in self._running:
            work.close()
            raise Refused("ABORTED", f"another call for {key} is still under way; ask again")
        task = asyncio.create_task(translated(work), name=f"csi/{key}")
        self._running[key] = task
        task.add_done_callback(lambda _: self._running.pop(key, None))
        task.add_done_callback(_noted)
        await asyncio.wait([task], timeout=patience)
        if not task.done():
            raise Refused("ABORTED", f"{key} takes longer than {patience:g} s; ask again")
        return await task

    async def close(self) -> None:
        """Wait for what is under way. What does not end in time is as if the driver had been killed."""
        if self._running:
            await asyncio.wait(self._running.values(), timeout=_END)
        for task in list(self._running.values()):
            task.cancel()


async def translated(work: Coroutine[Any, Any, Json]) -> Json:
    """The answer of `work`; raises Refused for whatever goes wrong."""
    try:
        return await work
    except Refused:
        raise
    except Permanent as error:
        raise Refused("FAILED_PRECONDITION", str(error)) from error
    except NodewrightError as error:
        raise Refused("INTERNAL", str(error)) from error
    except OSError as error:
        code = _CODES.get(error.errno or 0, "INTERNAL")
        advice = ". Make room on the node." if code == "RESOURCE_EXHAUSTED" else ""
        raise Refused(code, f"{error}{advice}") from error


def _noted(task: asyncio.Task[Json]) -> None:
    """An error whose caller is gone is logged, too."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.warning("%s: %s", task.get_name(), error)
