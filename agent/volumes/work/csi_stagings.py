"""Which CSI volumes are staged on the node and which pods use them; what no pod uses any more is unstaged.

vol_data.json files say what may be staged, also after the agent was killed. A pod that goes does not wait for a driver
that cannot unstage its volume: as upstream has it, that is tried again until it works or another pod has the volume,
for which it is staged anew (pkg/volume/csi, csi_attacher.go UnmountDevice).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from agent.common.work.jobs import Jobs
from agent.volumes.model.csi import VolumeKey
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_records import CsiRecords, Records
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
        records: CsiRecords,
        clock: Clock,
        in_use: Callable[[frozenset[str]], Awaitable[None]],
        remove: Remove,
    ) -> None:
        self._drivers, self._records, self._clock = drivers, records, clock
        self._in_use, self._remove = in_use, remove
        self.locks = KeyLocks[VolumeKey]()
        self._users: dict[VolumeKey, set[str]] = {}
        self._staged: set[VolumeKey] = set()
        self._left: set[VolumeKey] = set()  # perhaps staged, and no pod has them
        self._again = Jobs()

    def load(self, records: Records) -> None:
        """What an earlier run of the agent has left. Volumes of dead pods are in use until released."""
        for uid, found in records.published.items():
            for one in found:
                if not one.ephemeral:
                    self.use(one.key, uid)
        self._left = set(records.staged)

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

    async def leave(self, keys: Collection[VolumeKey], uid: str) -> None:
        """This pod does not use these volumes any more: unstage what no other has, or again later if that fails."""
        for key in keys:
            users = self._users.get(key, set())
            users.discard(uid)
            if not users:  # until it is unstaged no controller may detach it
                self._left.add(key)
        for key in await self._try(keys):
            self._again.start(("unstage", key), partial(self._unstage_later, key))

    async def sweep(self) -> None:
        """Until cancelled: unstage what no pod uses, and no longer than that."""
        jobs = Jobs()  # a driver that does not answer delays its own volumes only
        try:
            while True:
                by_driver: dict[str, list[VolumeKey]] = {}
                for key in (await self._records.look()).staged:
                    by_driver.setdefault(key.driver, []).append(key)
                for driver, keys in by_driver.items():
                    jobs.start(("unstage", driver), partial(self._sweep_driver, keys))
                await self._clock.sleep(_SWEEP_INTERVAL)
        finally:
            await jobs.close()
            await self._again.close()

    async def _sweep_driver(self, keys: Collection[VolumeKey]) -> None:
        await self._try(keys)

    async def _unstage_later(self, key: VolumeKey) -> None:
        """Until it is done, or a pod uses the volume."""
        pause, failed = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE), True
        while failed:
            await self._clock.sleep(pause.next())
            failed = bool(await self._try((key,)))

    async def _try(self, keys: Collection[VolumeKey]) -> list[VolumeKey]:
        """Unstage those that no pod uses. The log says why the others, which it returns, stay staged for now."""
        unused = [key for key in keys if not self._users.get(key)]
        if not unused:
            return []
        try:
            records = await self._records.look()
        except OSError as error:
            log.warning("%d volumes stay staged for now: %s", len(unused), error)
            return unused
        failed = []
        for key in unused:
            try:
                await self._unstage_unused(key, records)
            except (NodewrightError, OSError) as error:
                log.warning("volume %s of %s stays staged for now: %s", key.handle, key.driver, error)
                failed.append(key)
        return failed

    async def _unstage_unused(self, key: VolumeKey, records: Records) -> None:
        """`records`: as they were since the last pod left it. Whoever mounts it later counts as a user first."""
        async with self.locks.of(key):
            if self._users.get(key) or key in records.targets:
                return
            for one in records.staged.get(key, ()):
                await self.unstage(key, one.path)
            self._staged.discard(key)
            self._users.pop(key, None)
            self._left.discard(key)
        await self._in_use(frozenset())
