"""Kubernetes Events, written in the background, repeated ones counted instead of written again.

Follows client-go's recorder (tools/record): equal events within ten minutes are one Event
with a count; an object gets 25 at once and then one every five minutes; more than ten that
differ only in their message become one. Losing an Event never holds up anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from agent.model.pods import Json, Kind
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.times import format_rfc3339

log = logging.getLogger(__name__)

_QUEUE = 1000
_REMEMBERED = 4096
_WINDOW = 600.0  # seconds
_BURST, _REFILL = 25, 1 / 300  # events, events per second
_SIMILAR = 10
_MESSAGE_LIMIT = 1024
_TRIES = 5
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0  # seconds


@dataclass(slots=True)
class _Known:
    namespace: str
    name: str
    count: int
    last: float


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


@dataclass(slots=True)
class _Similar:
    messages: set[str]
    last: float


class EventRecorder:
    """agent.ports.Events. run() writes what emit() leaves; `host` is this node's name.

    `sent` False: there is no API server, events go to the log only.
    """

    def __init__(
        self, client: KubeClient, host: str, clock: Clock, component: str = "kubelet", *, sent: bool = True
    ) -> None:
        self._sent = sent
        self._client, self._host, self._clock, self._component = client, host, clock, component
        self._queue: asyncio.Queue[Json] = asyncio.Queue(_QUEUE)
        self._known: OrderedDict[tuple[str, ...], _Known] = OrderedDict()
        self._buckets: OrderedDict[tuple[str, ...], _Bucket] = OrderedDict()
        self._similar: OrderedDict[tuple[str, ...], _Similar] = OrderedDict()
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
        now = self._clock.now()
        target = _reference(about, container)
        event: Json = {
            "involvedObject": target,
            "type": kind,
            "reason": reason,
            "message": message if len(message) <= _MESSAGE_LIMIT else message[: _MESSAGE_LIMIT - 3] + "...",
            "at": now,
            "annotations": dict(annotations or {}),
        }
        log.info("event %s %s: %s: %s", kind, target.get("name"), reason, message)
        if not self._sent:
            return
        self._merge_similar(event)
        if not self._allowed(target, now):
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            log.warning("too many events wait for the API server: %s %s is dropped", reason, target.get("name"))

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            event = await self._queue.get()
            await self._deliver(event)

    async def flush(self) -> None:
        """Write what waits, at the end of the agent; whoever calls bounds the time."""
        while not self._queue.empty():
            await self._deliver(self._queue.get_nowait())

    async def _deliver(self, event: Json) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        for _ in range(_TRIES):
            try:
                await self._write(event)
                return
            except ApiError as error:
                if error.code < 500 and error.code != 429:
                    # The namespace is being deleted, or the object's name is not fit for an Event.
                    log.debug("event %s is refused: %s", event["reason"], error)
                    return
            except Temporary as error:
                log.debug("event %s: %s", event["reason"], error)
            await self._clock.sleep(pause.next())

    async def _write(self, event: Json) -> None:
        key = _key(event)
        known = self._known.get(key)
        if known is not None and event["at"] - known.last < _WINDOW:
            try:
                await self._count(known, event)
                return
            except ApiError as error:
                if not error.is_not_found:
                    raise
        await self._create(key, event)

    async def _count(self, known: _Known, event: Json) -> None:
        path = f"/api/v1/namespaces/{known.namespace}/events/{known.name}"
        patch: Json = {
            "count": known.count + 1,
            "lastTimestamp": format_rfc3339(event["at"]),
            "message": event["message"],
        }
        await self._client.patch(path, patch, kind="strategic")
        known.count, known.last = known.count + 1, event["at"]

    async def _create(self, key: tuple[str, ...], event: Json) -> None:
        target = event["involvedObject"]
        namespace = target.get("namespace") or "default"
        self._number += 1
        stamp = format(int(event["at"] * 1e9) + self._number % 1000, "x")
        name, at = f"{target['name']}.{stamp}", format_rfc3339(event["at"])
        body: Json = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace, "annotations": event["annotations"]},
            "involvedObject": target,
            "reason": event["reason"],
            "message": event["message"],
            "type": event["type"],
            "source": {"component": self._component, "host": self._host},
            "reportingComponent": self._component,
            "reportingInstance": self._host,
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        await self._client.post(f"/api/v1/namespaces/{namespace}/events", body)
        self._known[key] = _Known(namespace, name, 1, event["at"])
        self._known.move_to_end(key)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _merge_similar(self, event: Json) -> None:
        target = event["involvedObject"]
        key = (target.get("uid", ""), target.get("fieldPath", ""), event["type"], event["reason"])
        found = self._similar.get(key)
        if found is None or event["at"] - found.last > _WINDOW:
            found = self._similar[key] = _Similar(set(), event["at"])
        found.messages.add(event["message"])
        found.last = event["at"]
        self._similar.move_to_end(key)
        if len(self._similar) > _REMEMBERED:
            self._similar.popitem(last=False)
        if len(found.messages) > _SIMILAR:
            found.messages = set(list(found.messages)[: _SIMILAR + 1])
            event["combined"] = True
            event["message"] = f"(combined from similar events): {event['message']}"

    def _allowed(self, target: Json, now: float) -> bool:
        key = (target.get("uid", ""), target.get("name", ""))
        bucket = self._buckets.get(key) or _Bucket(_BURST, now)
        bucket.tokens = min(_BURST, bucket.tokens + (now - bucket.at) * _REFILL)
        bucket.at = now
        self._buckets[key] = bucket
        self._buckets.move_to_end(key)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _key(event: Json) -> tuple[str, ...]:
    target = event["involvedObject"]
    message = "" if event.get("combined") else event["message"]
    return (
        target.get("uid", ""),
        target.get("name", ""),
        target.get("fieldPath", ""),
        event["type"],
        event["reason"],
        message,
    )


def _reference(about: Json, container: str) -> Json:
    meta = about.get("metadata")
    if meta is None:
        return dict(about)
    found: Json = {
        "apiVersion": about.get("apiVersion") or "v1",
        "kind": about.get("kind") or "Pod",
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "resourceVersion": meta.get("resourceVersion", ""),
    }
    if meta.get("namespace"):
        found["namespace"] = meta["namespace"]
    if container:
        found["fieldPath"] = _field_path(about, container)
    return found


def _field_path(pod: Json, name: str) -> str:
    for kind in Kind:
        if any(one.get("name") == name for one in (pod.get("spec") or {}).get(kind.value) or []):
            return f"spec.{kind.value}{{{name}}}"
    return f"spec.containers{{{name}}}"
