"""Sends pod statuses to the API: the newest of each pod, if it differs from what the API shows.

Each pod with something to send has one task; several changes during one call make one more call. The API's answer is
the base of the next comparison. Upstream: pkg/kubelet/status/status_manager.go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.common.metrics import CONTAINER_TYPES, Metrics
from agent.common.model.pods import Pod
from agent.pods.plan.starting import is_ready
from agent.pods.plan.status_patch import is_urgent, status_patch
from agent.pods.plan.status_size import MOST, MOST_AFTER_REFUSAL, fitted, is_too_large
from agent.pods.plan.terminations import newly_ended
from agent.pods.ports import ApiPods
from agent.pods.work.status_turns import StatusTurns
from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json, encoded_size
from nodelib.kube.client import ApiError
from nodelib.kube.versions import is_lower_for_good, version_of
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.2
_LONGEST_PAUSE = 10.0
_LONGEST_REFUSAL = 300.0  # seconds until a status that was refused is tried again unchanged
_REFUSALS = (400, 413, 422)
_DELAY = 0.5  # seconds that a change nobody waits for may be held back, to be sent with the next one
_DELAY_IF_DELETED = 5.0  # the same for a deleted pod: the end of its containers is sure to follow


@dataclass(slots=True)
class _PodStatus:
    """`shown`: by the API, in resource `version`, `at` this time; `since`: `wanted` differs from it (monotonic).

    `wanted` is `whole` in the `most` bytes that the API server takes; `changed`: it is not what was tried last.
    """

    pod: Pod
    wanted: Json
    shown: Json
    version: int
    since: float = 0.0
    sent: asyncio.Event = field(default_factory=asyncio.Event)
    urgent: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    most: int = MOST
    whole: Json = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    size: int = 0  # bytes of the pod as the API server answered last
    at: float = 0.0
    gone: bool = False  # the API has no such pod any more
    awaited: bool = False  # flush() waits for it


class StatusManager:
    """Brings the status in the API to the one that was last set.

    `on_ready(uid)`: the API shows the pod as ready, and did not before.
    """

    def __init__(
        self, api: ApiPods, clock: Clock, metrics: Metrics, on_ready: Callable[[str], None] = lambda uid: None
    ) -> None:
        self._api, self._clock, self._metrics, self._on_ready = api, clock, metrics, on_ready
        self._slots: dict[str, _PodStatus] = {}
        self._turns = StatusTurns(clock)

    def set(self, pod: Pod, status: Json) -> None:
        """Send this status of `pod` soon. Never blocks."""
        slot = self._slots.get(pod.uid)
        whole, status = status, fitted(status, slot.most if slot is not None else MOST)
        version = version_of(pod.raw)
        if slot is not None and not self._is_news(slot, version) and status == slot.wanted:
            slot.pod = pod
            return  # sent, being sent or refused, and unchanged since
        for kind, code, reason in newly_ended(slot.whole if slot is not None else pod.status, whole):
            self._metrics.terminated_containers.labels(CONTAINER_TYPES[kind], code, reason).inc()
        if slot is None:
            slot = self._slots[pod.uid] = _PodStatus(pod, status, pod.status, version, at=self._clock.monotonic())
        slot.pod, slot.wanted, slot.whole = pod, status, whole
        slot.changed.set()
        if self._is_news(slot, version):
            self._show(slot, pod.status, version)
        if slot.gone or status_patch(pod, slot.shown, status) is None:
            if slot.task is None:
                slot.sent.set()
            return
        if slot.sent.is_set() or slot.task is None:
            slot.since = self._clock.monotonic()
        slot.sent.clear()
        if is_urgent(slot.shown, status):
            slot.urgent.set()
        if slot.task is None:
            slot.task = asyncio.create_task(self._write(slot), name=f"status/{pod.full_name}")

    async def flush(self, uid: str) -> None:
        """Wait until the API shows the newest status, or has no such pod any more."""
        slot = self._slots.get(uid)
        if slot is not None:
            slot.awaited = True
            slot.urgent.set()
            await slot.sent.wait()
            slot.awaited = False

    def shown(self, uid: str) -> Json | None:
        """The status that the API last showed."""
        slot = self._slots.get(uid)
        return slot.shown if slot else None

    def remove(self, uid: str) -> None:
        """The pod is gone: send nothing more of it."""
        slot = self._slots.pop(uid, None)
        if slot is not None and slot.task is not None:
            slot.task.cancel()

    async def close(self) -> None:
        """Stop sending."""
        tasks = [slot.task for slot in self._slots.values() if slot.task]
        await cancel_and_wait(*tasks)

    async def _write(self, slot: _PodStatus) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0.2)
        refused = Backoff(_FIRST_PAUSE, _LONGEST_REFUSAL, jitter=0.2)
        try:
            while not slot.gone:
                patch = status_patch(slot.pod, slot.shown, slot.wanted)
                if patch is None:
                    break
                if not slot.urgent.is_set():
                    await self._collect(slot)
                    continue
                if await self._turns.wait(slot.pod.namespace, slot.size):
                    patch = status_patch(slot.pod, slot.shown, slot.wanted)
                    if patch is None:
                        break
                self._turns.charge(slot.pod.namespace, slot.size)
                slot.urgent.clear()
                slot.changed.clear()
                try:
                    answer = await self._api.patch_status(slot.pod, patch)
                except ApiError as error:
                    slot.gone = error.is_not_found or error.is_conflict
                    if is_too_large(error.code, error.message) and slot.most > MOST_AFTER_REFUSAL:
                        self._cut(slot, error)
                    elif not slot.gone:
                        backoff = refused if error.code in _REFUSALS else pause
                        await self._pause(slot, error, backoff.next(error.retry_after))
                except Temporary as error:
                    await self._pause(slot, error, pause.next(error.retry_after))
                else:
                    pause.reset()
                    refused.reset()
                    self._answered(slot, answer)
                    if is_urgent(slot.shown, slot.wanted) or slot.awaited:
                        slot.urgent.set()
                    self._metrics.pod_status_sync_duration.observe(self._clock.monotonic() - slot.since)
                    slot.since = self._clock.monotonic()
                    if status_patch(slot.pod, slot.shown, slot.wanted) == patch:
                        # The server ignores some of it: sending the same again would never end.
                        # Log names only: a status may quote a container's output.
                        names = ", ".join(sorted(patch["status"]))
                        log.warning("pod %s: the API server ignored the new %s", slot.pod.full_name, names)
                        break
        finally:
            slot.task = None
            slot.sent.set()

    def _answered(self, slot: _PodStatus, answer: Json) -> None:
        version, size = version_of(answer), encoded_size(answer)
        if not slot.size:
            self._turns.charge(slot.pod.namespace, size)
        slot.size = size
        if version == slot.version or self._is_news(slot, version):
            self._show(slot, answer.get("status") or {}, version)

    def _show(self, slot: _PodStatus, status: Json, version: int) -> None:
        """The API shows this status now: its answer says so, or the watch, which may be first."""
        before, slot.shown, slot.version, slot.at = slot.shown, status, version, self._clock.monotonic()
        if is_ready(status) and not is_ready(before):
            self._on_ready(slot.pod.uid)

    def _is_news(self, slot: _PodStatus, version: int) -> bool:
        age = self._clock.monotonic() - slot.at
        return version > slot.version or is_lower_for_good(version, slot.version, age)

    async def _collect(self, slot: _PodStatus) -> None:
        """Wait for an urgent change, or until the delay is over."""
        await at_most(self._clock, _DELAY_IF_DELETED if slot.pod.is_deleted else _DELAY, slot.urgent)
        slot.urgent.set()

    def _cut(self, slot: _PodStatus, error: NodewrightError) -> None:
        log.warning("pod %s: status refused: %s; it is sent with shorter messages", slot.pod.full_name, error)
        slot.most = MOST_AFTER_REFUSAL
        slot.wanted = fitted(slot.whole, slot.most)
        slot.urgent.set()

    async def _pause(self, slot: _PodStatus, error: NodewrightError, pause: float) -> None:
        """A longer pause than usual ends when there is another status to send."""
        log.warning("pod %s: status not sent: %s; next try in %.1f s", slot.pod.full_name, error, pause)
        await self._clock.sleep(min(pause, _LONGEST_PAUSE))
        if pause > _LONGEST_PAUSE:
            await at_most(self._clock, pause - _LONGEST_PAUSE, slot.changed)
        slot.urgent.set()
