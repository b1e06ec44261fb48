"""The record of what was done for a pod. Times in wall seconds since the epoch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agent.probes.model import ProbeKind


class ActivityKind(Enum):
    """What can be done for a pod, or come of it; the value is what people are shown."""

    PREPARE = "prepare"
    VOLUMES = "volumes"
    CGROUP = "cgroup"
    SANDBOX = "sandbox"
    NETWORK = "network"
    IMAGE = "image"
    PULL = "pull"
    START = "start"
    CREATE = "create"
    RUN = "run"
    POST_START = "postStart"
    STOP = "stop"
    PRE_STOP = "preStop"
    SIGNAL = "signal"
    ENDED = "ended"
    READY = "ready"
    NOT_READY = "not ready"
    RESIZE = "resize"
    STOP_SANDBOX = "stop sandbox"
    REMOVE_NETWORK = "remove network"
    REMOVE_CONTAINER = "remove container"
    REMOVE_SANDBOX = "remove sandbox"
    RELEASE = "release"
    UNMOUNT = "unmount volumes"
    REMOVE_CGROUP = "remove cgroup"
    CONFIRM = "confirm"
    REMOVE_POD = "remove pod"


@dataclass(frozen=True, slots=True)
class Activity:
    """The same for each try of the same step. `container` or `volume`: whose, where it is not the pod's as a whole."""

    kind: ActivityKind
    container: str = ""
    volume: str = ""

    @property
    def words(self) -> str:
        """As timelines and logs show it."""
        if self.kind is ActivityKind.PULL:
            return f"pull for {self.image_key}"
        if self.volume:
            return f"{self.kind.value} of volume {self.volume}"
        return f"{self.kind.value} {self.container}" if self.container else self.kind.value

    @property
    def image_key(self) -> str:
        """Of an image or its pull: the key of images/plan/images.py Wanted."""
        return f"volume/{self.volume}" if self.volume else self.container


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that was done for a pod, or came of it.

    `seconds` None: under way. `outcome`: "ok", or what went wrong. `of`: the step that it is a part of; `note`: why it
    was done; `probe`: the failed probe that a container was stopped for; `attempt`: of the container, the newest one.
    The same with the same outcome, over and over, is one: `times` of it, the newest at `last_at`.
    """

    at: float
    what: Activity
    seconds: float | None = None
    outcome: str = "ok"
    of: Activity | None = None
    note: str = ""
    probe: ProbeKind | None = None
    attempt: int | None = None
    times: int = 1
    last_at: float = 0.0
