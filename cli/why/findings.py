"""What the judges of objects share: an explanation of one object, and its events as a timeline. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agent.explain.model import Explanation, TimelineLine, Wait
from cli.why.model import Explained, Facts, namespace_of, newest
from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339
from nodelib.text import one_line

_EVENTS = 40  # of one object
_TEXT = 2000  # bytes of one text of the API
# What the API server appends to generateName (apiserver/pkg/storage/names): each try to create a pod has another one.
_SUFFIX = re.compile(r'(?<=-)[bcdfghjklmnpqrstvwxz2456789]{5}(?=")')


def finding(
    kind: str,
    obj: Json,
    state: str,
    waits: Iterable[Wait],
    facts: Facts,
    *,
    listed: bool = True,
    also: Json | None = None,
) -> Explained:
    """The explanation of one object. `state` is the sentence for one that is well; `also`: its events count too."""
    every = tuple(waits)
    events = facts.events(obj) + (facts.events(also) if also is not None else [])
    summary = f"{state}, waits on {every[0].on}: {every[0].reason}" if every else state
    meta = obj["metadata"]
    explanation = Explanation(
        namespace_of(obj), str(meta["name"]), str(meta.get("uid", "")), "", state, summary, every, (), timeline(events)
    )
    return Explained(explanation, False, kind, listed and bool(every))


def timeline(events: Iterable[Json]) -> tuple[TimelineLine, ...]:
    """The newest events, oldest first. Those of the same reason and text, but for a generated name, are one line."""
    lines: dict[tuple[str, str], TimelineLine] = {}
    for event in sorted(events, key=newest)[-_EVENTS:]:
        line = _line(event)
        key = (line.step, _SUFFIX.sub("", line.outcome + line.note))
        before = lines.pop(key, None)
        if before is not None:
            line = TimelineLine(
                min(before.at, line.at),
                line.step,
                seconds=0.0,
                outcome=line.outcome,
                note=line.note,
                times=before.times + line.times,
                last_at=max(before.last_at, line.last_at),
            )
        lines[key] = line
    return tuple(lines.values())


def _line(event: Json) -> TimelineLine:
    at = at_time(event.get("firstTimestamp") or event.get("eventTime") or event["metadata"].get("creationTimestamp"))
    last = at_time(newest(event)) or at or 0.0
    good = event.get("type") == "Normal"
    text = one_line(str(event.get("message") or ""), _TEXT)
    series = event.get("series") or {}
    return TimelineLine(
        at or 0.0,
        one_line(str(event.get("reason") or ""), _TEXT),
        seconds=0.0,
        outcome="ok" if good else text,
        note=text if good else "",
        times=int(series.get("count") or event.get("count") or 1),
        last_at=last,
    )


def warning(events: Iterable[Json], *reasons: str) -> Json:
    """The newest event of one of these reasons, {} without one."""
    found: Json = {}
    for event in events:
        if event.get("reason") in reasons:
            found = event
    return found


def at_time(text: object) -> float | None:
    """Wall seconds; None for what is no time."""
    try:
        return parse_rfc3339(str(text)) if text else None
    except ValueError:
        return None
