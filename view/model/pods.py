"""What is answered about a pod: what it waits for, how it started, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from view.model.objects import Key


@dataclass(frozen=True, slots=True)
class Wait:
    """What a pod waits for, what is wrong, and what to do. `since`: wall seconds, 0: unknown; `share`: what is done."""

    text: str
    error: str = ""
    action: str = ""
    since: float = 0.0
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a pod's start as its node recorded it. `seconds`: None while it is under way; `part`: of another.

    `kind`: what is done, in a word that is the same for all pods.
    """

    at: float
    name: str
    seconds: float | None
    outcome: str
    part: bool = False
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """The answer of `why` about one pod. `by_node`: its node answered, so that `steps` is the node's own record."""

    summary: str
    is_well: bool
    by_node: bool
    waits: tuple[Wait, ...] = ()
    ends: tuple[str, ...] = ()
    logs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Pull:
    """An image that a pod waits for. `text`: how far it is; `share`: the same from 0 to 1, None while it is unknown."""

    on: str
    text: str
    share: float | None
    since: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a container uses or is denied, or how fast a probe answers. `figures`: some are counters."""

    of: str
    text: str
    figures: Mapping[str, float]
    action: str = ""


@dataclass(frozen=True, slots=True)
class PodRecord:
    """What a node did for one of its pods."""

    key: Key
    steps: tuple[Step, ...]
    pulls: tuple[Pull, ...] = ()
