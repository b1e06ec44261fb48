"""The waterfall of a pod's start: bars and milestones on one axis of time. Pure.

A node that answers gives its own record, in milliseconds. Otherwise the bars come from what the API has: Events and
container statuses, whose times are whole seconds. The milestones are always the pod's conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from nodelib.json_values import Json, object_or_empty, objects_in
from nodelib.kube.times import time_or
from nodelib.text import one_line
from view.model.pods import Step
from view.plan.under_way import under_way

_MOST = 60  # bars
_TEXT = 400  # bytes
_NOTE = 120  # bytes of why a step failed, which is said whole above
_SANDBOX = "Sandbox and network ready"
_CONDITIONS = (
    ("PodScheduled", "Scheduled"),
    ("PodReadyToStartContainers", _SANDBOX),
    ("Initialized", "Initialized"),
    ("ContainersReady", "Containers ready"),
    ("Ready", "Ready"),
)
_CONTAINER = re.compile(r"\{([^}]{1,253})\}")
GOOD, WAITS, BAD = "good", "waits", "bad"
_SLOWEST, _LONG = 3, 0.1  # steps that are named as the slowest, and seconds that such a one takes at least
_WORDS = {"ended": "{} runs to its end", "first probe": "{} waits for its first good probe"}
_WHOLE = 1.0  # seconds; conditions have no fractions
_BY_NODE = "The steps are the node's own record; the API's milestones are in whole seconds."
_BY_API = "By the API alone, in whole seconds: no agent that answers here knows this pod."
_LATER = "By the API alone, in whole seconds: the agent of its node was started later than the pod, and has no record."


@dataclass(frozen=True, slots=True)
class Bar:
    """What took time. `end` is None while it goes on; `average`: seconds that it takes on this node on average."""

    name: str
    begin: float
    end: float | None
    tone: str = GOOD
    note: str = ""
    part: bool = False
    kind: str = ""
    average: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A milestone; `at` 0 for one that is not reached, of which `note` says why if the API knows."""

    name: str
    at: float
    note: str = ""


def life(pod: Json, steps: Sequence[Step], events: Iterable[Json], averages: Mapping[str, float] | None = None) -> Json:
    """The document that the page draws; `begin` is when the pod was created. `averages`: seconds by kind of step."""
    made = time_or(0.0, pod["metadata"].get("creationTimestamp"))
    marks = _marks(pod)
    ready = next((mark.at for mark in marks if mark.name == "Ready"), 0.0)
    recorded = list(_recorded([*steps, *under_way(pod, steps)], averages or {}))
    # A sandbox that was ready before the record begins: it is that of an agent that was started later.
    before = next((mark.at for mark in marks if mark.name == _SANDBOX), 0.0)
    later = bool(before and recorded and min(one.begin for one in recorded) > before + _WHOLE)
    start = [] if later else [one for one in recorded if not ready or one.begin <= ready + _WHOLE]
    bars = start or sorted(_from_api(pod, events), key=lambda one: one.begin)
    source = _BY_NODE if start else _LATER if recorded else _BY_API
    return {
        "begin": min([made, *(one.begin for one in bars if one.begin)]) if made else 0.0,
        "exact": bool(start),
        "source": source,
        "bars": [asdict(one) for one in bars[:_MOST]],
        "slowest": [one.name for one in _slowest(bars[:_MOST])] if start else [],
        "left_out": (len(recorded) if start else len(bars)) - len(bars[:_MOST]),
        "marks": [asdict(one) for one in marks],
    }


def _slowest(bars: Iterable[Bar]) -> list[Bar]:
    """What took most of the time: steps that are no part of another, the longest first."""
    known = [(one.end - one.begin, one) for one in bars if one.end is not None and not one.part]
    longest = sorted(known, key=lambda one: -one[0])[:_SLOWEST]
    return [one for seconds, one in longest if seconds >= _LONG and seconds >= longest[0][0] / 10]


def _named(one: Step) -> str:
    """The step in words that say what is waited for."""
    for kind, words in _WORDS.items():
        if one.kind == kind and one.name.startswith(f"{kind} "):
            return words.format(one.name.removeprefix(f"{kind} "))
    return one.name


def _recorded(steps: Iterable[Step], averages: Mapping[str, float]) -> Iterator[Bar]:
    for one in steps:
        failed = one.seconds is not None and one.outcome not in ("ok", "")
        tone = WAITS if one.seconds is None else BAD if failed else GOOD
        end = None if one.seconds is None else one.at + one.seconds
        yield Bar(
            _cut(_named(one)),
            one.at,
            end,
            tone,
            one_line(one.outcome, _NOTE) if failed else "",
            one.part,
            one.kind,
            averages.get(one.kind),
        )


def _from_api(pod: Json, events: Iterable[Json]) -> Iterator[Bar]:
    reached = {mark.name: mark.at for mark in _marks(pod)}
    made, scheduled, sandbox = reached["Created"], reached["Scheduled"], reached[_SANDBOX]
    if made:
        yield Bar("wait for a node", made, scheduled or None, GOOD if scheduled else WAITS)
    if scheduled:
        yield Bar("volumes, sandbox and network", scheduled, sandbox or None, GOOD if sandbox else WAITS)
    yield from _pulls(events)
    status = object_or_empty(pod.get("status"))
    since = sandbox or scheduled or made
    for word in ("initContainerStatuses", "containerStatuses"):
        for one in objects_in(status.get(word)):
            name = "init container" if word.startswith("init") else "container"
            yield from _container(one, name, since, reached["Ready"])


def _pulls(events: Iterable[Json]) -> Iterator[Bar]:
    begun: dict[str, float] = {}
    for event in sorted(events, key=_at):
        box, reason = _box(event), event.get("reason")
        if reason == "Pulling":
            begun[box] = _at(event)
        elif reason in ("Pulled", "Failed") and box in begun:
            tone = GOOD if reason == "Pulled" else BAD
            yield Bar(f"pull the image of {box}", begun.pop(box), _at(event), tone, _cut(event.get("message") or ""))
    for box, at in begun.items():
        yield Bar(f"pull the image of {box}", at, None, WAITS)


def _container(one: Json, word: str, since: float, ready: float) -> Iterator[Bar]:
    """`since`: from when on it may have waited; `ready`: when the pod became ready, 0 if it is not."""
    name, state = _cut(f"{word} {one.get('name')}"), object_or_empty(one.get("state"))
    running, ended = object_or_empty(state.get("running")), object_or_empty(state.get("terminated"))
    waiting = object_or_empty(state.get("waiting"))
    if running.get("startedAt"):
        began = time_or(0.0, running["startedAt"])
        yield Bar(f"{name}, until ready", began, ready if ready >= began else None)
    elif ended.get("startedAt"):
        note = _cut(f"{ended.get('reason') or ''} exit code {ended.get('exitCode')}".strip())
        began = time_or(0.0, ended["startedAt"])
        tone = BAD if ended.get("exitCode") != 0 else GOOD
        yield Bar(name, began, time_or(began, ended.get("finishedAt")), tone, note)
    elif waiting.get("reason") and since:
        yield Bar(f"{name} waits", since, None, WAITS, _cut(waiting["reason"]))


def _marks(pod: Json) -> list[Mark]:
    every = {one.get("type"): one for one in objects_in(object_or_empty(pod.get("status")).get("conditions"))}
    found = [Mark("Created", time_or(0.0, pod["metadata"].get("creationTimestamp")))]
    for kind, name in _CONDITIONS:
        one = every.get(kind) or {}
        if one.get("status") == "True":
            found.append(Mark(name, time_or(0.0, one.get("lastTransitionTime"))))
        else:
            found.append(Mark(name, 0.0, _cut(one.get("message") or one.get("reason") or "")))
    return found


def _at(event: Json) -> float:
    first = event.get("eventTime") or event.get("firstTimestamp") or event["metadata"].get("creationTimestamp")
    return time_or(0.0, first)


def _box(event: Json) -> str:
    found = _CONTAINER.search(str(object_or_empty(event.get("involvedObject")).get("fieldPath") or ""))
    return _cut(found[1]) if found else "a container"


def _cut(text: object) -> str:
    return one_line(str(text), _TEXT)
