"""Writes changed ConfigMaps, Secrets, labels and tokens into mounted volumes, in tasks that no worker waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agent.pods.ports import PodVolumes
from agent.pods.work.memory import PodMemory
from nodelib.clock import Clock, rest_after
from nodelib.errors import NodewrightError, Temporary
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

_RETRY = 60.0  # seconds
# After each refresh a rest of so many times as long, and of so many seconds at most: the sources may change all the
# time, and all volumes of a pod, of 96 MiB or a hundred thousand files, are written anew for each change.
_REST, _LONGEST_REST = 3, 30.0


class VolumeRefreshes:
    """One refresh at a time for each pod; `again(uid)` is called a while after a refresh with a Temporary error."""

    def __init__(self, volumes: PodVolumes, again: Callable[[str], None], clock: Clock) -> None:
        self._volumes, self._again, self._clock = volumes, again, clock
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stale: set[str] = set()
        self._retries: dict[str, asyncio.TimerHandle] = {}

    def request(self, memory: PodMemory) -> None:
        """Refresh the volumes of this pod; they must be mounted."""
        uid = memory.pod.uid
        if uid in self._tasks:
            self._stale.add(uid)  # the running refresh may have read the old content: once more afterwards
        else:
            task = asyncio.create_task(self._refresh(uid, memory), name=f"refresh/{memory.pod.full_name}")
            self._tasks[uid] = task

    def remove(self, uid: str) -> None:
        timer, task = self._retries.pop(uid, None), self._tasks.pop(uid, None)
        if timer is not None:
            timer.cancel()
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        for timer in self._retries.values():
            timer.cancel()
        await cancel_and_wait(*self._tasks.values())

    async def _refresh(self, uid: str, memory: PodMemory) -> None:
        try:
            while True:
                self._stale.discard(uid)
                began = self._clock.monotonic()
                try:
                    await self._volumes.refresh(memory.pod)
                except Temporary as error:
                    log.warning(
                        "pod %s: volumes keep their old content until the next try: %s", memory.pod.full_name, error
                    )
                    self._retry(uid)
                except NodewrightError as error:
                    log.warning("pod %s: volumes keep their old content: %s", memory.pod.full_name, error)
                await rest_after(self._clock, began, _REST, _LONGEST_REST)
                if uid not in self._stale:
                    return
        finally:
            if self._tasks.get(uid) is asyncio.current_task():  # else the pod was removed, and may have come back
                self._stale.discard(uid)
                del self._tasks[uid]

    def _retry(self, uid: str) -> None:
        """No event says that an API server grants a token again: without another try, the credential would expire."""

        def again() -> None:
            del self._retries[uid]
            self._again(uid)

        if uid not in self._retries:
            self._retries[uid] = asyncio.get_running_loop().call_later(_RETRY, again)
