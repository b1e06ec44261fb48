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


@dataclass(frozen=True, slots=True)
class Device:
    """One piece. `numa`: the NUMA nodes that it is near to, () when it does not say."""

    id: str
    healthy: bool = True
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """What a device plugin wants to be asked, beside Allocate."""

    pre_start: bool = False
    preferred_allocation: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """A resource as its plugin last described it. `connected` False: nobody serves it, since `left_at` (monotonic s).

    All devices of a plugin that is not there count as unhealthy.
    """

    devices: Mapping[str, Device] = field(default_factory=dict)
    connected: bool = False
    left_at: float = 0.0
    options: PluginOptions = PluginOptions()

    @property
    def healthy(self) -> frozenset[str]:
        return frozenset(one.id for one in self.devices.values() if one.healthy) if self.connected else frozenset()


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Who has devices of one resource."""

    uid: str
    container: str
    resource: str


@dataclass(frozen=True, slots=True)
class Holding:
    """Which devices, and what the plugin said the container is to have for them. `numa`: NUMA node -> ids, -1: none."""

    ids: frozenset[str]
    grant: DeviceGrant = NO_DEVICES
    numa: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


Holdings = dict[Holder, Holding]
