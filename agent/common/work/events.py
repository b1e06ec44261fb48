"""Writes Kubernetes Events in the background, as client-go's recorder does; plan/event_series.py decides which."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from agent.common.plan import event_series as plan
from agent.common.plan.event_series import Bucket, Event, Similar, Written
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError

log = logging.getLogger(__name__)

_QUEUE = 1000
_RECENT = 1024  # entries of each kind: the events of a busy quarter of an hour
_TRIES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0  # seconds

Value = TypeVar("Value")


class EventsApi(Protocol):
    """nodelib/kube/client.py KubeClient. Every call raises ApiError or ApiUnreachable."""

    async def post(self, path: str, body: Json) -> Json: ...

    async def patch(self, path: str, body: Json, kind: str = "merge") -> Json: ...


class EventRecorder:
    """agent.common.ports.Events. emit() queues, run() writes; `host` is this node's name.

    `qps` and `burst`: eventRecordQPS (0: no limit) and eventBurst, of the requests to the API server. `sent` False:
    there is none, events go to the log only.
    """

    def __init__(
        self,
        client: EventsApi,
        host: str,
        clock: Clock,
        component: str = "kubelet",
        *,
        sent: bool = True,
        qps: float = 50,
        burst: int = 100,
    ) -> None:
        self._sent, self._qps, self._burst = sent, qps, burst
        self._requests: Bucket | None = None
        self._client, self._host, self._clock, self._component = client, host, clock, component
        self._queue: asyncio.Queue[Event] = asyncio.Queue(_QUEUE)
        self._written: _Recent[Written] = _Recent()
        self._buckets: _Recent[Bucket] = _Recent()
        self._similar: _Recent[Similar] = _Recent()
        self._number = 0

    def emit(
        self,
        about: Json,
        kind: str,
        reason: str,
        message: str,
        *,
        container: str = "",
        host: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        fresh = plan.event(about, kind, reason, message, container, self._clock.steady())
        name = fresh.target.get("name")
        log.info("event %s %s: %s: %s", kind, name, reason, fresh.message)
        if not self._sent:
            return
        ahead = self._clock.now() - self._clock.steady()
        fresh = replace(fresh, annotations=dict(annotations or {}), ahead=ahead)
        merged, similar = plan.merged(fresh, self._similar.get(fresh.similar_key))
        self._similar.put(fresh.similar_key, similar)
        bucket, allowed = plan.spent(self._buckets.get(merged.object_key), self._clock.monotonic())
        self._buckets.put(merged.object_key, bucket)
        if not allowed:
            return
        try:
            self._queue.put_nowait(merged)
        except asyncio.QueueFull:
            log.warning("too many events are waiting for the API server: %s %s is dropped", reason, name)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._deliver(await self._queue.get())

    async def flush(self) -> None:
        """Write what is queued, when the agent stops; the caller limits the time."""
        while not self._queue.empty():
            await self._deliver(self._queue.get_nowait())

    async def _deliver(self, event: Event) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        for _ in range(_TRIES):
            asked: float | None
            try:
                await self._write(event)
                return
            except ApiError as error:
                asked = error.retry_after
                if error.code < 500 and error.code != 429:
                    # The namespace is being deleted, or the object's name is too long for an Event.
                    log.debug("event %s is refused: %s", event.reason, error)
                    return
            except Temporary as error:
                asked = error.retry_after
                log.debug("event %s: %s", event.reason, error)
            await self._clock.sleep(pause.next(asked))

    async def _write(self, event: Event) -> None:
        known = self._written.get(event.key)
        if known is not None and plan.is_counted(known, event.at):
            path = f"/api/v1/namespaces/{known.namespace}/events/{known.name}"
            await self._paced()
            try:
                await self._client.patch(path, plan.count_patch(known, event), kind="strategic")
                self._written.put(event.key, Written(known.namespace, known.name, known.count + 1, event.at))
                return
            except ApiError as error:
                if not error.is_not_found:
                    raise
        self._number += 1
        body = plan.document(event, self._number, self._component, self._host)
        meta = body["metadata"]
        await self._paced()
        await self._client.post(f"/api/v1/namespaces/{meta['namespace']}/events", body)
        self._written.put(event.key, Written(meta["namespace"], meta["name"], 1, event.at))

    async def _paced(self) -> None:
        """Wait until eventRecordQPS allows one more request."""
        now = self._clock.monotonic()
        self._requests, wait = plan.paced(self._requests, now, qps=self._qps, burst=self._burst)
        if wait:
            await self._clock.sleep(wait)


class _Recent(Generic[Value]):
    """The newest entries by key, a bounded number of them."""

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[str, ...], Value] = OrderedDict()

    def get(self, key: tuple[str, ...]) -> Value | None:
        return self._entries.get(key)

    def put(self, key: tuple[str, ...], value: Value) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > _RECENT:
            self._entries.popitem(last=False)
