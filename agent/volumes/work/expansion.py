"""Grow one volume whose claim asks for more, and say so in the claim's status and in events.

Follows pkg/volume/util/operationexecutor (node_expander.go, and operation_generator.go for a volume just mounted).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from agent.common.model.errors import PluginError
from agent.common.ports import Events
from agent.volumes.plan import expand as plan
from agent.volumes.plan.csi import is_final_error
from agent.volumes.ports import ClaimApi
from agent.volumes.work.growing import GrowingVolume
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A claim, its PersistentVolume, and the bytes that the volume has to grow to, 0: nothing to do."""

    claim: Json
    volume: Json
    size: int


class Expansion:
    """Every call raises NodewrightError."""

    def __init__(self, api: ClaimApi, events: Events, clock: Clock) -> None:
        self._api, self._events, self._clock = api, events, clock
        self._failed: set[str] = set()  # PersistentVolumes whose growth failed, for certain

    async def wanted(self, one: GrowingVolume, *, is_new: bool) -> Wanted | None:
        """None: there is no claim, or it does not ask for more. Of a volume just mounted that does not matter:
        the PersistentVolume may be larger all the same.
        """
        claim = await self._api.claim(one.pod.namespace, one.claim)
        if claim is None or not (is_new or plan.asks_for_more(claim)):
            return None
        volume = await self._api.volume(one.spec_name)
        return Wanted(claim, volume or {}, plan.wanted_size(claim, volume) if volume is not None else 0)

    async def grow(self, one: GrowingVolume, wanted: Wanted) -> None:
        """Until it has grown, and the claim's status says so."""
        if not wanted.size:
            return
        if one.read_only:
            text = f'MountVolume.NodeExpandVolume failed for volume "{one.spec_name}" requested read-only file system'
            self._emit(one, wanted, "Warning", "FileSystemResizeFailed", text)
            return
        if not plan.is_in_progress(wanted.claim):
            await self._patch(one, plan.in_progress())
        try:
            if not await one.grow(wanted.size):
                return
        except NodewrightError as error:
            await self._say_failed(one, wanted, error)
            raise
        self._failed.discard(one.spec_name)
        await self._patch(one, plan.done(wanted.claim, wanted.volume))
        log.info("volume %s of pod %s has grown to %d bytes", one.spec_name, one.pod.full_name, wanted.size)
        node = one.pod.spec.get("nodeName") or ""
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{one.spec_name}" {node}'
        self._emit(one, wanted, "Normal", "FileSystemResizeSuccessful", text)

    def keep(self, spec_names: Iterable[str]) -> None:
        """Forget the failures of all other PersistentVolumes."""
        self._failed &= set(spec_names)

    async def _say_failed(self, one: GrowingVolume, wanted: Wanted, error: NodewrightError) -> None:
        """In the claim's status, unless the driver may still be at work."""
        code = error.code if isinstance(error, PluginError) else ""
        if not is_final_error(code):
            return
        # The user has asked for another size since: a controller can only take that up once this one is given up.
        given_up = one.spec_name in self._failed and plan.asked_size(wanted.claim) != wanted.size
        self._failed.add(one.spec_name)
        stamp = format_rfc3339(self._clock.now())
        infeasible = plan.is_infeasible(code) or given_up
        patch = (plan.infeasible if infeasible else plan.failed)(wanted.claim, error.message, stamp)
        try:
            if patch is not None:
                await self._patch(one, patch)
        except NodewrightError as problem:
            log.warning("volume %s: its claim cannot say that it does not grow: %s", one.spec_name, problem)

    def _emit(self, one: GrowingVolume, wanted: Wanted, kind: str, reason: str, message: str) -> None:
        """About the pod and about the claim."""
        self._events.emit(one.pod.raw, kind, reason, message)
        self._events.emit(plan.reference(wanted.claim, one.pod.namespace, one.claim), kind, reason, message)

    async def _patch(self, one: GrowingVolume, patch: Json) -> None:
        await self._api.patch_claim(one.pod.namespace, one.claim, patch)
