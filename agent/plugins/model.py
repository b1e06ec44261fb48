"""Plugins that register by a socket under plugins_registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_LONGEST_SOCKET = 107  # bytes of a socket's path, see unix(7)
CSI_PLUGIN, DEVICE_PLUGIN, DRA_PLUGIN = "CSIPlugin", "DevicePlugin", "DRAPlugin"


def can_be_socket(path: str) -> bool:
    """Whether a plugin may listen at this path: one that the kernel takes, and that leaves no folder by `..`."""
    fits = len(path.encode(errors="replace")) <= _LONGEST_SOCKET
    return fits and path.isprintable() and ".." not in path.split("/")


@dataclass(frozen=True, slots=True)
class SocketFile:
    """A socket as it was found. Another inode or time means that its plugin has been restarted."""

    path: str
    inode: int = 0
    modified_ns: int = 0


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """The answer of GetInfo (pluginregistration); `endpoint` is the socket that the plugin serves on."""

    type: str
    name: str
    endpoint: str
    versions: tuple[str, ...] = ()

    def is_same(self, other: PluginInfo) -> bool:
        """Whether both stand for one plugin, whichever socket told of it."""
        return (self.type, self.name, self.endpoint) == (other.type, other.name, other.endpoint)


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered plugin."""

    socket: SocketFile
    info: PluginInfo


@dataclass(frozen=True, slots=True)
class FailedRegistration:
    """A failed registration: when it is tried again (monotonic seconds), and how often it has failed."""

    socket: SocketFile
    retry_at: float
    times: int


@dataclass(frozen=True, slots=True)
class PluginsView:
    """The sockets that were found; registered and failed plugins by socket path; `busy` paths have a task running.

    `registering`: for how many seconds each registration that is under way has taken.
    """

    found: frozenset[SocketFile] = frozenset()
    registered: Mapping[str, Registered] = field(default_factory=dict)
    failed: Mapping[str, FailedRegistration] = field(default_factory=dict)
    busy: frozenset[str] = frozenset()
    registering: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginsPlan:
    """`wait_until`: when to plan again even if nothing changes (monotonic seconds), None: never."""

    deregister: tuple[Registered, ...] = ()
    register: tuple[SocketFile, ...] = ()
    wait_until: float | None = None


@dataclass(frozen=True, slots=True)
class NodeExtras:
    """What plugins add to the Node's status: unique names of the volumes in use, and devices.

    `capacity` and `allocatable`: number of devices by resource; resources in `removed` no longer exist, so they are 0.
    """

    volumes_in_use: tuple[str, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    removed: tuple[str, ...] = ()
