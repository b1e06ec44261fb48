"""Plugins that offer themselves by a socket under plugins_registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN = "CSIPlugin", "DevicePlugin", "DRAPlugin"


@dataclass(frozen=True, slots=True)
class SocketFile:
    """A socket as it was found: another inode or time means that its plugin was started anew."""

    path: str
    inode: int = 0
    made_ns: int = 0


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What a plugin says of itself (pluginregistration GetInfo); `endpoint` is the socket that it serves on."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Registered:
    socket: SocketFile
    info: PluginInfo


@dataclass(frozen=True, slots=True)
class Refused:
    """A registration that failed: when to try again (monotonic seconds), and how often it has failed."""

    socket: SocketFile
    retry_at: float
    times: int


@dataclass(frozen=True, slots=True)
class PluginsView:
    """What there is (`found`), what is registered and what failed, by socket path; `busy` paths are being worked on."""

    found: frozenset[SocketFile] = frozenset()
    registered: Mapping[str, Registered] = field(default_factory=dict)
    refused: Mapping[str, Refused] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PluginsPlan:
    """`wait_until`: when to plan again although nothing has changed, None: never."""

    deregister: tuple[Registered, ...] = ()
    register: tuple[SocketFile, ...] = ()
    wait_until: float | None = None


@dataclass(frozen=True, slots=True)
class NodeExtras:
    """What plugins make of the node: volumes in use by their unique names, and devices to be had.

    `capacity` and `allocatable`: pieces by resource; a resource in `removed` is no longer offered at all: 0 of it.
    """

    volumes_in_use: tuple[str, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
