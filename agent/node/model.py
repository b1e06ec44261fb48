"""The facts that the Node object is made from. Memory and storage in bytes, cpus in cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.common.model.pods import ImageFacts
from agent.plugins.model import NodeExtras
from agent.runtime.model import RuntimeFacts


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
class NodeCondition:
    """A condition of the Node beside those of the field (a part of the agent that waits for something)."""

    kind: str
    status: str
    reason: str
    message: str


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
    extras: NodeExtras = field(default_factory=NodeExtras)


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
