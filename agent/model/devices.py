"""Devices that plugins offer on this node (device plugin API v1beta1), and which containers have them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """What a container is to have for its devices; mounts and devices are CRI dicts, CDI devices qualified names."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Json, ...] = ()
    devices: tuple[Json, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


NO_DEVICES = DeviceGrant()
