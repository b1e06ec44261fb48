"""What happened to a pod, and why it is not running or not gone. Times in wall seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TimelineLine:
    """Something that was done for the pod, or came of it, as people and other programs read it.

    `step` in words, `of` the step that it is a part of; `kind`, `container`, `attempt` and `of_kind` say the same as
    values. `seconds` None: under way. `outcome`: "ok", or what went wrong; `note`: why it was done. It was done `times`
    times with that outcome, the newest at `last_at`.
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


@dataclass(frozen=True, slots=True)
class Wait:
    """One thing that the pod waits for.

    `on`: the object (container app, volumes, network); `since` and `next_try` None: not known, or when something
    happens; `tries`: how often it failed so far; `progress`: how far it is, of what is under way.
    """

    on: str
    reason: str
    error: str = ""
    action: str = ""
    since: float | None = None
    next_try: float | None = None
    tries: int = 0
    progress: str = ""


@dataclass(frozen=True, slots=True)
class End:
    """A container that ended: when, how, and why, as far as the node knows."""

    container: str
    at: float
    how: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Cost:
    """What something of the pod costs, or is kept from: in words, as figures by name, and what to do if it matters."""

    of: str
    told: str
    figures: Mapping[str, float] = field(default_factory=dict)
    action: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The whole answer; `summary` is one sentence, `waits` is empty for a pod that is as it should be.

    `costs`: only for a pod that is asked for by its name.
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
