"""Which Events are written, counted, merged or dropped, and what they contain.

Follows client-go's recorder (tools/record/events_cache.go): equal events within ten minutes are one Event with a count;
an object gets 25 of a type at once and then one every five minutes; from the tenth on, those that differ only in their
message become one. All requests share the bucket of eventRecordQPS and eventBurst (cmd/kubelet/app/server.go).
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
_DEFAULT_BURST = 10  # of client-go's rest.Config, for a burst of 0
_MESSAGE_LIMIT = 1024
_IDENTITY = ("kind", "namespace", "name", "uid", "apiVersion")


@dataclass(frozen=True, slots=True)
class Event:
    """An Event to be written. `at` in steady seconds; `combined`: it stands for all similar ones.

    `ahead`: how far the wall clock is ahead of the steady one, for the times that are shown.
    """

    target: Json
    kind: str
    reason: str
    message: str
    at: float
    combined: bool = False
    ahead: float = 0.0
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for events that are one Event with a count."""
        target = self.target
        names = (target.get("uid", ""), target.get("name", ""), target.get("fieldPath", ""))
        return (*names, self.kind, self.reason, "" if self.combined else self.message)

    @property
    def similar_key(self) -> tuple[str, ...]:
        """Equal for events that differ only in their message (EventAggregatorByReasonFunc)."""
        return (*self.object_key, self.reason)

    @property
    def object_key(self) -> tuple[str, ...]:
        """Equal for events that share the bucket of their object and type (getSpamKey)."""
        return (*(self.target.get(name) or "" for name in _IDENTITY), self.kind)


@dataclass(frozen=True, slots=True)
class Written:
    """An Event that the API server has."""

    namespace: str
    name: str
    count: int
    last: float


@dataclass(frozen=True, slots=True)
class Bucket:
    """How many Events may still come at once (a token bucket). `at` in monotonic seconds.

    Negative: so many are waiting for a token.
    """

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
    messages = before if len(before) >= _SIMILAR else before | {event.message}
    if len(messages) < _SIMILAR:
        return event, Similar(messages, event.at)
    text = f"(combined from similar events): {event.message}"
    return replace(event, message=text, combined=True), Similar(messages, event.at)


def spent(known: Bucket | None, now: float) -> tuple[Bucket, bool]:
    """The bucket of an object afterwards, and whether one more Event is allowed at `now` (monotonic seconds)."""
    tokens = _tokens(known, now, _REFILL, _BURST)
    return (Bucket(tokens - 1, now), True) if tokens >= 1 else (Bucket(tokens, now), False)


def paced(known: Bucket | None, now: float, *, qps: float, burst: int) -> tuple[Bucket, float]:
    """The bucket of all requests afterwards, and the seconds that the next one has to wait, at `now` (monotonic)."""
    if qps <= 0:
        return Bucket(0, now), 0.0
    tokens = _tokens(known, now, qps, burst or _DEFAULT_BURST) - 1
    return Bucket(tokens, now), max(0.0, -tokens / qps)


def _tokens(known: Bucket | None, now: float, refill: float, burst: int) -> float:
    return float(burst) if known is None else min(float(burst), known.tokens + (now - known.at) * refill)


def is_counted(known: Written | None, now: float) -> bool:
    """Whether the count of an existing Event is raised."""
    return known is not None and now - known.last < WINDOW


def count_patch(known: Written, event: Event) -> Json:
    return {"count": known.count + 1, "lastTimestamp": format_rfc3339(event.at + event.ahead), "message": event.message}


def document(event: Event, number: int, component: str, host: str) -> Json:
    """The Event object; `number` makes names of the same moment differ."""
    target, at = event.target, format_rfc3339(event.at + event.ahead)
    stamp = format(int((event.at + event.ahead) * 1e9) + number % 1000, "x")
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
