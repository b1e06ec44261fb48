"""A pod that is evicted, and the node conditions that evictions come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import Pod

REASON = "Evicted"


MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE = "MemoryPressure", "DiskPressure", "PIDPressure"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that is to go: why (as its status says it), and how many seconds it gets.

    `signal`: what the metric counts it under. `disrupted`: the pod gets the condition DisruptionTarget.
    """

    pod: Pod
    reason: str
    message: str
    grace: int
    signal: str = ""
    disrupted: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
