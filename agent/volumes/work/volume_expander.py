"""Grow mounted volumes whose claims ask for more, online, while the pod runs.

A node may get the claims of its pods but not watch them: they are read every few seconds, and at once after a mount.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from agent.common.model.errors import PluginError
from agent.common.ports import Events
from agent.common.work.jobs import Jobs
from agent.volumes.plan import expand as plan
from agent.volumes.work.expansion import Expansion
from agent.volumes.work.growing import GrowingVolume, GrowingVolumes
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.loop_share import LoopShare

_INTERVAL = 10.0  # seconds
_SHARE, _UNPAID = 0.05, 0.01  # of the event loop's time, and seconds of it: somebody may have thousands of volumes
_MANY, _PACE = 200, 0.02  # claims of a group; seconds between two of more than those
_LONGEST_PAUSE = 122.0  # seconds between tries, as upstream's exponentialbackoff

_Key = tuple[str, str]


class _Failure:
    """What a volume failed with last, and when (monotonic) it may be tried again."""

    def __init__(self) -> None:
        self.message, self.retry_at, self.backoff = "", 0.0, Backoff(_INTERVAL, _LONGEST_PAUSE)


class VolumeExpander:
    """run() is long-lived."""

    def __init__(self, sources: Sequence[GrowingVolumes], expansion: Expansion, events: Events, clock: Clock) -> None:
        self._sources, self._expansion, self._events, self._clock = sources, expansion, events, clock
        self._seen: set[_Key] = set()
        self._failures: dict[_Key, _Failure] = {}

    async def run(self) -> None:
        """Until cancelled."""
        jobs, share, loop = Jobs(), LoopShare(_SHARE, _UNPAID), asyncio.get_running_loop()
        try:
            while True:
                await self._wait()
                await share.rest()
                began = loop.time()
                groups: dict[str, list[GrowingVolume]] = {}
                for one in self._growing():
                    groups.setdefault(one.group, []).append(one)
                for group, volumes in groups.items():
                    jobs.start(("expand", group), partial(self._expand_all, volumes))
                share.charge(loop.time() - began)
        finally:
            await jobs.close()

    async def _wait(self) -> None:
        """Until a volume is mounted, or it is time to look at all of them again."""
        waits = [asyncio.ensure_future(one.new_mount.wait()) for one in self._sources]
        try:
            await asyncio.wait(waits, timeout=_INTERVAL, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        for one in self._sources:
            one.new_mount.clear()

    def _growing(self) -> list[GrowingVolume]:
        """Each volume once, whichever of the pods that share it: it needs to grow only once, for one that writes."""
        found = [one for source in self._sources for one in source.growing()]
        keys = {_key(one) for one in found}
        self._seen &= keys
        self._failures = {key: failure for key, failure in self._failures.items() if key in keys}
        self._expansion.keep(one.spec_name for one in found)
        readers_first = sorted(found, key=lambda one: not one.read_only)
        return list({one.spec_name: one for one in readers_first}.values())

    async def _expand_all(self, volumes: list[GrowingVolume]) -> None:
        many = len(volumes) > _MANY
        for one in sorted(volumes, key=lambda one: _key(one) in self._seen) if many else volumes:
            if many and _key(one) in self._seen:
                await self._clock.sleep(_PACE)
            failure = self._failures.get(_key(one))
            if failure is not None and self._clock.monotonic() < failure.retry_at:
                continue
            try:
                await self._expand_if_asked(one)
            except NodewrightError as error:
                self._report_failure(one, error)
            else:
                self._failures.pop(_key(one), None)

    async def _expand_if_asked(self, one: GrowingVolume) -> None:
        """The claim tells when there is more to do; just after the mount, the PersistentVolume is read, too."""
        is_new = _key(one) not in self._seen
        if one.read_only and not is_new:
            return
        wanted = await self._expansion.wanted(one, is_new=is_new)
        if wanted is not None:
            self._seen.add(_key(one))
            await self._expansion.grow(one, wanted)

    def _report_failure(self, one: GrowingVolume, error: NodewrightError) -> None:
        """Emit one event for each new cause; the pause until the next try grows.

        A driver that cannot grow what is in use is not asked again for this pod (MarkForInUseExpansionError).
        """
        message, failure = str(error), self._failures.setdefault(_key(one), _Failure())
        in_use = isinstance(error, PluginError) and plan.is_in_use(error.code)
        failure.retry_at = float("inf") if in_use else self._clock.monotonic() + failure.backoff.next()
        if failure.message != message:
            failure.message = message
            text = f'NodeExpandVolume.NodeExpandVolume failed for volume "{one.spec_name}" : {message}'
            self._events.emit(one.pod.raw, "Warning", "VolumeResizeFailed", text)


def _key(one: GrowingVolume) -> _Key:
    return one.pod.uid, one.spec_name
