"""Which Events are written, counted, merged or dropped, and what they contain.

Follows client-go's recorder (tools/record): equal events within ten minutes are one Event with a count; an object gets
25 at once and then one every five minutes; more than ten that differ only in their message become one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agent.common.model.pods import Kind
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339
from nodelib.text import visible

WINDOW = 600.0  # seconds
_BURST, _REFILL = 25, 1 / 300  # events, events per second
_SIMILAR = 10
_MESSAGE_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class Event:
    """An Event to be written. `at` in wall seconds; `combined`: it stands for all similar ones."""

    target: Json
    kind: str
    reason: str
    message: str
    at: float
    combined: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for events that are one Event with a count."""
        target = self.target
        names = (target.get("uid", ""), target.get("name", ""), target.get("fieldPath", ""))
        return (*names, self.kind, self.reason, "" if self.combined else self.message)

    @property
    def similar_key(self) -> tuple[str, ...]:
        """Equal for events that differ only in their message."""
        return (self.target.get("uid", ""), self.target.get("fieldPath", ""), self.kind, self.reason)

    @property
    def object_key(self) -> tuple[str, ...]:
        return (self.target.get("uid", ""), self.target.get("name", ""))


@dataclass(frozen=True, slots=True)
class Written:
    """An Event that the API server has."""

    namespace: str
    name: str
    count: int
    last: float


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many Events an object may still have at once (a token bucket)."""

    tokens: float
    at: float


@dataclass(frozen=True, slots=True)
class Similar:
    """The messages of similar events, up to the number at which they are merged."""

    messages: frozenset[str]
    last: float


def event(about: Json, kind: str, reason: str, message: str, container: str, now: float) -> Event:
    """`about`: an object of the API, or a reference to one.

    The message may quote what a container writes: `kubectl describe` would hand its control characters to a terminal.
    """
    shown = visible(message[: _MESSAGE_LIMIT + 1])
    short = shown if len(shown) <= _MESSAGE_LIMIT else shown[: _MESSAGE_LIMIT - 3] + "..."
    return Event(reference(about, container), kind, reason, short, now)


def merged(event: Event, known: Similar | None) -> tuple[Event, Similar]:
    """The event, in the name of all similar ones when they are too many; and the new record of those."""
    fresh = known is None or event.at - known.last > WINDOW
    before = frozenset() if fresh or known is None else known.messages
    messages = before if len(before) > _SIMILAR else before | {event.message}
    if len(messages) <= _SIMILAR:
        return event, Similar(messages, event.at)
    text = f"(combined from similar events): {event.message}"
    return replace(event, message=text, combined=True), Similar(messages, event.at)


def spent(known: Bucket | None, now: float) -> tuple[Bucket, bool]:
    """The bucket afterwards, and whether one more Event is allowed."""
    tokens = _BURST if known is None else min(float(_BURST), known.tokens + (now - known.at) * _REFILL)
    return (Bucket(tokens - 1, now), True) if tokens >= 1 else (Bucket(tokens, now), False)


def is_counted(known: Written | None, now: float) -> bool:
    """Whether the count of an existing Event is raised."""
    return known is not None and now - known.last < WINDOW


def count_patch(known: Written, event: Event) -> Json:
    return {"count": known.count + 1, "lastTimestamp": format_rfc3339(event.at), "message": event.message}


def document(event: Event, number: int, component: str, host: str) -> Json:
    """The Event object; `number` makes names of the same moment differ."""
    target, at = event.target, format_rfc3339(event.at)
    stamp = format(int(event.at * 1e9) + number % 1000, "x")
    annotated: Json = {"annotations": dict(event.annotations)} if event.annotations else {}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{target['name']}.{stamp}",
            "namespace": target.get("namespace") or "default",
            **annotated,
        },
        "involvedObject": target,
        "reason": event.reason,
        "message": event.message,
        "type": event.kind,
        "source": {"component": component, "host": host},
        "reportingComponent": component,
        "reportingInstance": host,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def reference(about: Json, container: str) -> Json:
    """The ObjectReference of an object, of one of its containers when one is named."""
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
