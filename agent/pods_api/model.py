"""What is told of pods."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from agent.common.model.pods import Pod
from nodelib.json_values import Json


class Change(IntEnum):
    """EventType of pods v1alpha1."""

    ADDED = 1
    MODIFIED = 2
    DELETED = 3
    INITIAL_SYNC_COMPLETE = 4


@dataclass(frozen=True, slots=True)
class ServedPod:
    """`status`: computed by the agent, {} before the first time; `over`: it has ended and released everything."""

    pod: Pod
    status: Json
    over: bool = False
