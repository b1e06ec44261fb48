"""Devices that device plugins (API v1beta1) offer on this node, and the containers that they are allocated to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class DeviceGrant:
    """What a container is created with for its devices (upstream's DeviceRunContainerOptions).

    `mounts` and `devices` are CRI dicts, `cdi_devices` fully qualified CDI names.
    """

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[Json, ...] = ()
    devices: tuple[Json, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


NO_DEVICES = DeviceGrant()


@dataclass(frozen=True, slots=True)
class Device:
    """One device. `numa`: the NUMA nodes that it is close to, () when the plugin does not say."""

    id: str
    healthy: bool = True
    numa: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """The optional calls that a device plugin wants to receive besides Allocate."""

    pre_start: bool = False
    preferred_allocation: bool = False


@dataclass(frozen=True, slots=True)
class RegisteredPlugin:
    """A resource as its plugin last listed it. `connected` False: the plugin stopped at `stopped_at` (monotonic s).

    All devices of a plugin that is not connected count as unhealthy.
    """

    devices: Mapping[str, Device] = field(default_factory=dict)
    connected: bool = False
    stopped_at: float = 0.0
    options: PluginOptions = PluginOptions()
    healthy: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        # Once: each status of the node asks, and there may be tens of thousands.
        able = (one.id for one in self.devices.values() if one.healthy and self.connected)
        object.__setattr__(self, "healthy", frozenset(able))


@dataclass(frozen=True, slots=True, order=True)
class AllocationKey:
    """The container (pod UID and name) and the resource that devices are allocated for."""

    uid: str
    container: str
    resource: str


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """The allocated devices and what the plugin answered to Allocate. `numa`: NUMA node -> ids; -1: no node known."""

    ids: frozenset[str]
    grant: DeviceGrant = NO_DEVICES
    numa: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


PodDevices = dict[AllocationKey, DeviceAllocation]
