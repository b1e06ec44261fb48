"""What is answered about a node: its pods, its disk, its evictions, its programs."""

from __future__ import annotations

from dataclasses import dataclass

from view.model.objects import Key
from view.model.pods import PodRecord


@dataclass(frozen=True, slots=True)
class Image:
    """An image on a node's disk. `held`: by whom, "" for one that can be removed."""

    name: str
    size: int
    held: str


@dataclass(frozen=True, slots=True)
class ImageDisk:
    """The file system of a node's images. `high`, `low`: percent in use at which a collection begins and ends."""

    capacity: int
    available: int
    high: int
    low: int
    images: tuple[Image, ...]
    words: tuple[str, ...]  # what a collection would do, and what the last one did


@dataclass(frozen=True, slots=True)
class PodDisk:
    """What a pod holds of its node's disk. `parts`: in words, with their sizes, the largest first."""

    key: Key
    used: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DiskHolders:
    """The pods that hold most of a node's disk; `used` is what all hold. `unknown`: why that is not known."""

    used: int = 0
    pods: tuple[PodDisk, ...] = ()
    left_out: int = 0
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """An eviction threshold: met when less than `least` is available. `since`: since when it is met, 0: it is not."""

    signal: str
    available: int
    capacity: int
    least: int
    grace: float
    since: float


@dataclass(frozen=True, slots=True)
class Evicted:
    """A pod that a node evicted."""

    pod: str
    at: float
    message: str


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program that a node's supervisor keeps running. `age`: for how many seconds it has been running."""

    name: str
    alive: bool
    pid: int
    age: float
    starts: int
    last_exit: str


@dataclass(frozen=True, slots=True)
class NodeWork:
    """What a node is at, as far as it answers; `silent` has why a part of it is not known."""

    pods: tuple[PodRecord, ...] = ()
    disk: ImageDisk | None = None
    holders: DiskHolders = DiskHolders(unknown="the node does not say")
    thresholds: tuple[Threshold, ...] = ()
    evicted: tuple[Evicted, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    silent: tuple[str, ...] = ()
