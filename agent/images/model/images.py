"""The report of the images on the node's disk: what holds each and what a collection would do. Wall seconds, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HoldReason(StrEnum):
    """Why an image cannot be removed now."""

    CONTAINER = "container"
    VOLUME = "volume"
    PINNED = "pinned"
    YOUNG = "young"


@dataclass(frozen=True, slots=True)
class Hold:
    """`who`: the pod and container, or for how much longer."""

    kind: HoldReason
    who: str = ""


@dataclass(frozen=True, slots=True)
class HeldImage:
    """`used`: when it was last seen in use, 0: not since this agent started. No `holds`: it can be removed."""

    id: str
    names: tuple[str, ...]
    size: int
    detected: float
    used: float
    holds: tuple[Hold, ...] = ()

    @property
    def name(self) -> str:
        return self.names[0] if self.names else self.id


@dataclass(frozen=True, slots=True)
class Collected:
    """The last collection that had something to do. `problem`: "" when it freed as much as it should."""

    at: float
    wanted: int
    freed: int
    removed: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ImageReport:
    """`images`: first those that can be removed, in the order of removal, then the others, the largest first.

    `high`, `low`: percent of the file system at which a collection begins and ends; `to_free`: bytes it would free now.
    """

    node: str
    at: float
    capacity: int
    available: int
    high: int
    low: int
    to_free: int
    images: tuple[HeldImage, ...] = ()
    last: Collected | None = None
