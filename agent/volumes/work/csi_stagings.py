"""Which CSI volumes are staged on the node and which pods use them; what no pod uses any more is unstaged.

vol_data.json files say what may be staged, also after the agent was killed. A pod that goes does not wait for a driver
that cannot unstage its volume: as upstream has it, that is tried again until it works or another pod has the volume,
for which it is staged anew (pkg/volume/csi, csi_attacher.go UnmountDevice).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial

from agent.common.work.jobs import Jobs
from agent.volumes.model.csi import Published, VolumeKey
from agent.volumes.ports import CsiDisk
from agent.volumes.work.csi_drivers import CsiDrivers
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.key_locks import KeyLocks

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 122.0  # seconds between two tries, as upstream's exponentialbackoff
_SWEEP_INTERVAL = 120.0  # seconds

Remove = Callable[[str, str], Awaitable[None]]


class CsiStagings:
    """load() first; sweep() is long-lived. `locks`: one task at a time works on a volume. `in_use` is called when a
    volume is used no more; `remove(folder, mount)` takes the directories of one away, and raises NodewrightError."""

    def __init__(
        self,
        drivers: CsiDrivers,
        disk: CsiDisk,
        clock: Clock,
        in_use: Callable[[frozenset[str]], Awaitable[None]],
        remove: Remove,
    ) -> None:
        self._drivers, self._disk, self._clock, self._in_use, self._remove = drivers, disk, clock, in_use, remove
        self.locks = KeyLocks[VolumeKey]()
        self._users: dict[VolumeKey, set[str]] = {}
        self._staged: set[VolumeKey] = set()
        self._left: set[VolumeKey] = set()  # perhaps staged, and nobody has asked for them
        self._again = Jobs()

    async def load(self, published: Mapping[str, Iterable[Published]]) -> None:
        """`published`: what the pods' directories say, by UID. Those of dead pods are in use until released."""
        for uid, found in published.items():
            for one in found:
                if not one.ephemeral:
                    self.use(one.key, uid)
        self._left = {one.key for one in await asyncio.to_thread(self._disk.all_staged)}

    def use(self, key: VolumeKey, uid: str) -> None:
        """This pod has the volume, or will."""
        self._users.setdefault(key, set()).add(uid)

    def used_by(self, uid: str) -> list[VolumeKey]:
        return [key for key, users in self._users.items() if uid in users]

    def keys_in_use(self) -> set[VolumeKey]:
        """What pods use, or may still be staged for nobody."""
        return {key for key, users in self._users.items() if users} | self._left

    def is_staged(self, key: VolumeKey) -> bool:
        """Whether this run of the agent has staged it."""
        return key in self._staged

    def staged(self, key: VolumeKey) -> None:
        self._staged.add(key)

    async def unstage(self, key: VolumeKey, path: str) -> None:
        """At this path, by whoever holds the volume's lock. Raises NodewrightError."""
        driver, _ = self._drivers.get(key.driver)
        self._staged.discard(key)  # even if it fails: nobody knows what the driver has done
        await driver.unstage(key.handle, path)
        await self._remove(path.rpartition("/")[0], path)

    async def leave(self, key: VolumeKey, uid: str) -> None:
        """This pod does not use the volume any more: unstage it if no other does, or again later if that fails."""
        self._users.get(key, set()).discard(uid)
        if not await self._try(key):
            self._left.add(key)
            self._again.start(("unstage", key), partial(self._unstage_later, key))

    async def sweep(self) -> None:
        """Until cancelled: unstage what no pod uses, and no longer than that."""
        jobs = Jobs()  # a driver that does not answer delays its own volumes only
        try:
            while True:
                by_driver: dict[str, list[VolumeKey]] = {}
                for one in await asyncio.to_thread(self._disk.all_staged):
                    by_driver.setdefault(one.key.driver, []).append(one.key)
                for driver, keys in by_driver.items():
                    jobs.start(("unstage", driver), partial(self._sweep_driver, keys))
                await self._clock.sleep(_SWEEP_INTERVAL)
        finally:
            await jobs.close()
            await self._again.close()

    async def _sweep_driver(self, keys: list[VolumeKey]) -> None:
        for key in keys:
            await self._try(key)

    async def _unstage_later(self, key: VolumeKey) -> None:
        """Until it is done, or a pod uses the volume."""
        pause, done = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), False
        while not done:
            await self._clock.sleep(pause.next())
            done = await self._try(key)

    async def _try(self, key: VolumeKey) -> bool:
        """False: the volume stays staged for now, and the log says why."""
        try:
            await self._unstage_unused(key)
        except (NodewrightError, OSError) as error:
            log.warning("volume %s of %s stays staged for now: %s", key.handle, key.driver, error)
            return False
        return True

    async def _unstage_unused(self, key: VolumeKey) -> None:
        async with self.locks.of(key):
            published = await asyncio.to_thread(self._disk.all_published)
            if self._users.get(key) or any(one.key == key for ones in published.values() for one in ones):
                return
            for one in await asyncio.to_thread(self._disk.all_staged):
                if one.key == key:
                    await self.unstage(key, one.path)
            self._staged.discard(key)
            self._users.pop(key, None)
            self._left.discard(key)
        await self._in_use(frozenset())
