"""Grow mounted volumes whose claims ask for more, online, while the pod runs.

A node may get the claims of its pods but not watch them: they are read every few seconds, and at once after a mount.
Follows pkg/volume/util/operationexecutor (node_expander.go, and operation_generator.go for a volume just mounted).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

from agent.common.model.errors import PluginError
from agent.common.ports import Events
from agent.common.work.jobs import Jobs
from agent.volumes.plan import expand as plan
from agent.volumes.ports import ClaimApi
from agent.volumes.work.growing import GrowingVolume, GrowingVolumes
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339

log = logging.getLogger(__name__)

_INTERVAL = 10.0  # seconds
_LONGEST_PAUSE = 122.0  # seconds between tries, as upstream's exponentialbackoff

_Key = tuple[str, str]


class _Failure:
    """What a volume failed with last, and when (monotonic) it may be tried again."""

    def __init__(self) -> None:
        self.message, self.retry_at, self.backoff = "", 0.0, Backoff(_INTERVAL, _LONGEST_PAUSE)


class VolumeExpander:
    """run() is long-lived."""

    def __init__(self, sources: Sequence[GrowingVolumes], api: ClaimApi, events: Events, clock: Clock) -> None:
        self._sources, self._api, self._events, self._clock = sources, api, events, clock
        self._seen: set[_Key] = set()
        self._failures: dict[_Key, _Failure] = {}

    async def run(self) -> None:
        """Until cancelled."""
        jobs = Jobs()
        try:
            while True:
                await self._wait()
                groups: dict[str, list[GrowingVolume]] = {}
                for one in self._growing():
                    groups.setdefault(one.group, []).append(one)
                for group, volumes in groups.items():
                    jobs.start(("expand", group), partial(self._expand_all, volumes))
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
        readers_first = sorted(found, key=lambda one: not one.read_only)
        return list({one.spec_name: one for one in readers_first}.values())

    async def _expand_all(self, volumes: list[GrowingVolume]) -> None:
        for one in volumes:
            failure = self._failures.get(_key(one))
            if failure is not None and self._clock.monotonic() < failure.retry_at:
                continue
            try:
                await self._expand_if_asked(one)
            except NodewrightError as error:
                self._report_failure(one, str(error))
            else:
                self._failures.pop(_key(one), None)

    async def _expand_if_asked(self, one: GrowingVolume) -> None:
        """The claim tells when there is more to do; just after the mount, the PersistentVolume is read, too."""
        is_new = _key(one) not in self._seen
        if one.read_only and not is_new:
            return
        claim = await self._api.claim(one.pod.namespace, one.claim)
        if claim is None or not (is_new or plan.asks_for_more(claim)):
            return
        volume = await self._api.volume(one.spec_name)
        size = plan.wanted_size(claim, volume) if volume is not None else 0
        self._seen.add(_key(one))
        if volume is None or not size:
            return
        if one.read_only:
            text = f'MountVolume.NodeExpandVolume failed for volume "{one.spec_name}" requested read-only file system'
            self._events.emit(one.pod.raw, "Warning", "FileSystemResizeFailed", text)
            return
        await self._expand(one, claim, volume, size)

    async def _expand(self, one: GrowingVolume, claim: Json, volume: Json, size: int) -> None:
        if not plan.is_in_progress(claim):
            await self._patch(one, plan.in_progress())
        try:
            if not await one.grow(size):
                return
        except PluginError as error:
            if plan.is_infeasible(error.code):
                await self._patch(one, plan.infeasible(error.message, format_rfc3339(self._clock.now())))
            raise
        await self._patch(one, plan.done(claim, volume))
        log.info("volume %s of pod %s has grown to %d bytes", one.spec_name, one.pod.full_name, size)
        node = one.pod.spec.get("nodeName") or ""
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{one.spec_name}" {node}'
        self._events.emit(one.pod.raw, "Normal", "FileSystemResizeSuccessful", text)

    async def _patch(self, one: GrowingVolume, patch: Json) -> None:
        await self._api.patch_claim(one.pod.namespace, one.claim, patch)

    def _report_failure(self, one: GrowingVolume, message: str) -> None:
        """Emit one event for each new cause; the pause until the next try grows."""
        failure = self._failures.setdefault(_key(one), _Failure())
        failure.retry_at = self._clock.monotonic() + failure.backoff.next()
        if failure.message != message:
            failure.message = message
            text = f'NodeExpandVolume.NodeExpandVolume failed for volume "{one.spec_name}" : {message}'
            self._events.emit(one.pod.raw, "Warning", "VolumeResizeFailed", text)


def _key(one: GrowingVolume) -> _Key:
    return one.pod.uid, one.spec_name
