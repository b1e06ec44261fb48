"""Statuses on their way to the API: the newest one of each pod, sent as soon as it differs from what the API shows.

One writer a pod, alive only while there is something to say; several changes during one
call make one more call. What the API says back becomes the base of the next comparison.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from agent.common.metrics import Metrics
from agent.common.model.pods import Json, Pod
from agent.pods.plan.patch import is_urgent, status_patch
from agent.pods.ports import ApiPods
from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError, Temporary
from nodelib.kube.client import ApiError

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_UNHURRIED = 0.5  # seconds that a change nobody waits for may be held back, to go with the next one
_UNHURRIED_AT_THE_END = 5.0  # the same of a pod that is being deleted: the end of its containers is sure to follow


@dataclass(slots=True)
class _Slot:
    pod: Pod
    wanted: Json
    shown: Json
    version: int
    since: float = 0.0
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    gone: bool = False
    awaited: bool = False  # somebody waits until all of it is shown


class StatusManager:
    """One writer a pod: what the API shows becomes what was last said of it."""

    def __init__(self, api: ApiPods, clock: Clock, metrics: Metrics) -> None:
        self._api, self._clock, self._metrics = api, clock, metrics
        self._slots: dict[str, _Slot] = {}

    def set(self, pod: Pod, status: Json) -> None:
        """Say this of `pod` as soon as possible. Never blocks."""
        slot = self._slots.get(pod.uid)
        version = _version(pod.raw)
        if slot is not None and version <= slot.version and status == slot.wanted:
            slot.pod = pod
            return  # on its way, or shown, or refused: nothing has changed since
        if slot is None:
            slot = self._slots[pod.uid] = _Slot(pod, status, pod.status, version)
        slot.pod, slot.wanted = pod, status
        if version > slot.version:
            slot.shown, slot.version = pod.status, version
        if slot.gone or status_patch(pod, slot.shown, status) is None:
            if slot.task is None:
                slot.sent.set()
            return
        if slot.sent.is_set() or slot.task is None:
            slot.since = self._clock.monotonic()
        slot.sent.clear()
        if is_urgent(slot.shown, status):
            slot.hurry.set()
        if slot.task is None:
            slot.task = asyncio.create_task(self._write(slot), name=f"status/{pod.full_name}")

    async def flush(self, uid: str) -> None:
        """Until the API shows the newest status, or has no such pod any more."""
        slot = self._slots.get(uid)
        if slot is not None:
            slot.awaited = True
            slot.hurry.set()
            await slot.sent.wait()
            slot.awaited = False

    def shown(self, uid: str) -> Json | None:
        """The status that the API showed last."""
        slot = self._slots.get(uid)
        return slot.shown if slot else None

    def remove(self, uid: str) -> None:
        """The pod is no more: nothing of it is sent."""
        slot = self._slots.pop(uid, None)
        if slot is not None and slot.task is not None:
            slot.task.cancel()

    async def close(self) -> None:
        """Stop all writers."""
        tasks = [slot.task for slot in self._slots.values() if slot.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, slot: _Slot) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0.2)
        try:
            while not slot.gone:
                patch = status_patch(slot.pod, slot.shown, slot.wanted)
                if patch is None:
                    break
                if not slot.hurry.is_set():
                    await self._gather(slot)
                    continue
                slot.hurry.clear()
                try:
                    answer = await self._api.patch_status(slot.pod, patch)
                except ApiError as error:
                    slot.gone = error.is_not_found or error.is_conflict
                    if not slot.gone:
                        await self._rest(slot, error, pause.next())
                except Temporary as error:
                    await self._rest(slot, error, pause.next())
                else:
                    pause.reset()
                    self._answered(slot, answer)
                    if is_urgent(slot.shown, slot.wanted) or slot.awaited:
                        slot.hurry.set()
                    self._metrics.pod_status_sync_duration.observe(self._clock.monotonic() - slot.since)
                    slot.since = self._clock.monotonic()
                    if status_patch(slot.pod, slot.shown, slot.wanted) == patch:
                        # The server keeps something as it was: sending the same again would never end.
                        # Names only: a status may quote a container's output.
                        names = ", ".join(sorted(patch["status"]))
                        log.warning("pod %s: the API server keeps its own %s", slot.pod.full_name, names)
                        break
        finally:
            slot.task = None
            slot.sent.set()

    def _answered(self, slot: _Slot, answer: Json) -> None:
        version = _version(answer)
        if version >= slot.version:
            slot.shown, slot.version = answer.get("status") or {}, version

    async def _gather(self, slot: _Slot) -> None:
        """Until something is_urgent, or the time is up."""
        await at_most(self._clock, _UNHURRIED_AT_THE_END if slot.pod.is_deleted else _UNHURRIED, slot.hurry)
        slot.hurry.set()

    async def _rest(self, slot: _Slot, error: NodewrightError, pause: float) -> None:
        log.warning("pod %s: status not sent: %s; next try in %.1f s", slot.pod.full_name, error, pause)
        await self._clock.sleep(pause)
        slot.hurry.set()


def _version(raw: Json) -> int:
    # Comparable as numbers since Kubernetes 1.35 (KEP-5504); anything else sorts as oldest.
    text = str(raw.get("metadata", {}).get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
