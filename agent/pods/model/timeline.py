"""The entries of a pod's timeline: what was done for it, when and for how long. Times are wall seconds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from agent.probes.model import ProbeKind


class ActivityKind(Enum):
    """What can be done for a pod or happen to it; the value is what people are shown."""

    ADMIT = "admit"
    PREPARE = "prepare"
    VOLUMES = "volumes"
    MOUNT = "mount"
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
    FIRST_PROBE = "first probe"
    READY = "ready"
    SHOWN_READY = "tell that it is ready"
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
    """Equal for each try of the same step. Neither `container` nor `volume`: it concerns the pod as a whole."""

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
        """The key that the image has in Wanted (images/plan/images.py)."""
        return f"volume/{self.volume}" if self.volume else self.container


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that was done for a pod or happened to it, from `at`.

    `seconds` None: under way. `outcome`: "ok", or what went wrong. `of`: the step that it is a part of; `note`: why it
    was done; `probe`: the failed probe that a container was stopped for; `attempt`: the container's newest.
    What happens again and again with the same outcome is one entry: `times` counts it, `last_at` is the newest.
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
