"""Explanations: what happened to a pod, what it waits for, and what it costs. Times in wall seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """One entry of the pod's timeline, for people and for other programs.

    `step` is the text for people, and `of` the step that it is a part of; `kind`, `container`, `volume`, `attempt` and
    `of_kind` say the same as values. `seconds` is None while it is under way. `outcome` is "ok" or the error; `note`
    says why it was done. It was done `times` times with the same outcome, most recently at `last_at`.
    """

    at: float
    step: str
    seconds: float | None = None
    outcome: str = "ok"
    of: str = ""
    note: str = ""
    times: int = 1
    last_at: float = 0.0
    kind: str = ""
    container: str = ""
    attempt: int | None = None
    of_kind: str = ""
    volume: str = ""


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that the pod waits for.

    `on` is the object (container app, volumes, network), "" for a pod that has failed and waits no more. `since` is
    None when it is not known, `next_try` when there is no fixed time for one. `tries` counts the failures so far;
    `progress` says how far an operation under way is, and `share` the same as a number from 0 to 1, None if not known.
    """

    on: str
    reason: str
    error: str = ""
    action: str = ""
    since: float | None = None
    next_try: float | None = None
    tries: int = 0
    progress: str = ""
    share: float | None = None


@dataclass(frozen=True, slots=True)
class End:
    """A container that ended: when, how, and why, as far as the node knows.

    `times`: how often it had ended by then, those included of which the runtime has no record any more.
    """

    container: str
    at: float
    how: str
    why: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """The resources that a container or a probe of the pod uses or is denied, as text and as metrics by name.

    `action` is what a user can do, if it matters.
    """

    of: str
    text: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    action: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole answer. `summary` is one sentence; `waits` is empty for a pod that is as it should be.

    `costs` is filled in only when the pod is asked for by its name.
    """

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    summary: str
    waits: tuple[Wait, ...] = ()
    ends: tuple[End, ...] = ()
    timeline: tuple[TimelineLine, ...] = ()
    costs: tuple[Cost, ...] = ()
