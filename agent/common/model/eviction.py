"""An eviction, and the node conditions that lead to one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import Pod

REASON = "Evicted"
MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE = "MemoryPressure", "DiskPressure", "PIDPressure"


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that must be stopped for good: reason and message of its status, and its grace period in seconds.

    `signal`: the label of the metric that counts it. `disrupted`: the pod gets the condition DisruptionTarget.
    """

    pod: Pod
    reason: str
    message: str
    grace: int
    signal: str = ""
    disrupted: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
