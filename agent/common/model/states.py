"""Waiting containers, failed steps, back-offs and pulled images: values that several rooms share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agent.common.model.pods import ImageFacts


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why a container is not running: the reason and message of its waiting state."""

    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that failed, and when (steady seconds) it is worth another try.

    `since`: the first time for this reason; `action`: what a user can do about it.
    """

    reason: str
    message: str
    retry_at: float
    times: int = 1
    since: float = 0.0
    action: str = ""


@dataclass(frozen=True, slots=True)
class BackOff:
    """One restart or pull back-off: how long (seconds), and when it was last extended (steady seconds)."""

    delay: float
    updated_at: float


@dataclass(frozen=True, slots=True)
class BackOffBounds:
    """The first and the longest delay of a back-off, in seconds."""

    first: float = 10.0
    longest: float = 300.0


class ImagePhase(Enum):
    PULLING = "pulling"
    PRESENT = "present"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ImageState:
    """How far the image for one attempt of a container is. `retry_at` in steady seconds."""

    attempt: int
    phase: ImagePhase
    ref: str = ""
    facts: ImageFacts | None = None
    waiting: Waiting | None = None
    retry_at: float = 0.0
