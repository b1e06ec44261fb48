"""The health of the devices of DRA drivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

DeviceKey = tuple[str, str]
"""Pool and name of a device; unique for one driver."""


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    """`status`: Healthy, Unhealthy or Unknown; it counts until `until` (monotonic seconds), unless it is told again.

    `timeout`: seconds for which one report counts.
    """

    status: str
    message: str
    timeout: float
    until: float

    def says(self, other: DeviceHealth | None) -> bool:
        """Whether `other` says the same."""
        return other is not None and (self.status, self.message) == (other.status, other.message)


Healths = Mapping[DeviceKey, DeviceHealth]
"""Of one driver's devices. One that is missing is Unknown."""
