"""The facts that the Node object is made from. Memory and storage in bytes, cpus in cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.pods import ImageFacts


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What does not change while the machine runs. `pids`: how many processes the kernel can have."""

    machine_id: str
    system_uuid: str
    boot_id: str
    kernel_version: str
    os_image: str
    architecture: str
    cpus: int
    memory: int
    storage: int
    pids: int
    swap: int = 0
    hugepages: Mapping[int, int] = field(default_factory=dict)
    apparmor: bool = True


@dataclass(frozen=True, slots=True)
class RuntimeHandler:
    """A handler of the container runtime and what pods may ask of it."""

    name: str
    recursive_read_only_mounts: bool = False
    user_namespaces: bool = False


@dataclass(frozen=True, slots=True)
class RuntimeFacts:
    """The container runtime as it last answered. `problems`: why no pod can run now, in upstream's words."""

    name: str = "unknown"
    version: str = "Unknown"
    handlers: tuple[RuntimeHandler, ...] = ()
    supplemental_groups_policy: bool | None = None
    problems: tuple[str, ...] = ("container runtime status check may not have completed yet",)
    network_ready: bool = True  # until the runtime says otherwise


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """A condition of the Node beside those of the field (a part of the agent that waits for something)."""

    kind: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeExtras:
    """What plugins make of the node: volumes in use by their unique names, and devices to be had.

    `capacity` and `allocatable`: pieces by resource; a resource in `removed` is no longer offered at all: 0 of it.
    """

    volumes_in_use: tuple[str, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """Everything that a Node's status is computed from. `reserved`: resource -> quantity, kept from pods."""

    machine: MachineFacts
    runtime: RuntimeFacts
    addresses: tuple[tuple[str, str], ...]
    images: tuple[ImageFacts, ...] = ()
    pressures: frozenset[str] = frozenset()
    problems: tuple[str, ...] = ()
    port: int = 10250
    declared_features: tuple[str, ...] = ()
    more: tuple[NodeCondition, ...] = ()
    extras: NodeExtras = NodeExtras()


@dataclass(frozen=True, slots=True)
class NodePlace:
    """What the pod network must know of a node: where it is and which pod ranges are behind it."""

    name: str
    internal_ips: tuple[str, ...]
    pod_cidrs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event about the node."""

    kind: str
    reason: str
    message: str
