"""What the Node object is computed from, and what comes out beside it. Memory and storage in bytes, cpus in cores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from agent.common.model.binding import config, flag, gate
from agent.common.model.pods import ImageFacts
from agent.common.model.selinux import Selinux
from agent.plugins.model import NodeExtras
from agent.runtime.model import RuntimeFacts
from nodelib.firewall.objects import Family
from nodelib.json_values import Json


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What does not change while the machine runs (cAdvisor's MachineInfo). `pids`: the kernel's limit of processes.

    `selinux`: None where it is not enabled; `user_namespace`: root here is another user of the machine.
    """

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
    selinux: Selinux | None = None
    user_namespace: bool = False


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """A condition of the Node beside upstream's: a part of the agent reports what it waits for."""

    kind: str
    status: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeInputs:
    """Everything that a Node's status is computed from. `problems`: why it is not ready; `more`: further conditions."""

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
    """What the pod network needs to know of a node: its addresses and the pod ranges behind them, and since when its
    object exists.
    """

    name: str
    internal_ips: tuple[str, ...]
    pod_cidrs: tuple[str, ...]
    created: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """An Event about the node."""

    kind: str
    reason: str
    message: str


def _enforces_pods(enforced: Collection[str]) -> bool:
    return "pods" in enforced


@dataclass(frozen=True, slots=True)
class NodePolicy:
    """What the configuration says about the Node; reservations and thresholds as quantities or percentages."""

    name: Annotated[str, flag("hostname-override")]
    labels: Annotated[Mapping[str, str], flag("node-labels")]
    taints: Annotated[tuple[Json, ...], config("registerWithTaints", convert=tuple)] = ()
    provider_id: Annotated[str, config("providerID")] = ""
    controller_attach_detach: Annotated[bool, config("enableControllerAttachDetach")] = True
    max_pods: Annotated[int, config("maxPods")] = 110
    pods_per_core: Annotated[int, config("podsPerCore")] = 0
    max_images: Annotated[int, config("nodeStatusMaxImages")] = 50
    kube_reserved: Annotated[Mapping[str, str] | None, config("kubeReserved")] = None
    system_reserved: Annotated[Mapping[str, str] | None, config("systemReserved")] = None
    eviction_hard: Annotated[Mapping[str, str] | None, config("evictionHard")] = None
    names_user_namespace: Annotated[bool, gate("KubeletInUserNamespace")] = True
    enforce_pods: Annotated[bool, config("enforceNodeAllocatable", convert=_enforces_pods)] = True


@dataclass(frozen=True, slots=True)
class WatchedChains:
    """What to compare of one table: which of `chains` it has, and the rules of those in `rules`."""

    family: Family
    table: str
    chains: tuple[str, ...]
    rules: tuple[str, ...] = ()
