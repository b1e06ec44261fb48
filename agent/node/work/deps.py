"""What the keeper of the Node works through, asks and informs, and its times. agent/build/node.py makes them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from agent.common.ports import Events
from agent.common.work.observable import Observable
from agent.node.model import MachineFacts, NodeCondition, NodePlace
from agent.plugins.model import NodeExtras
from agent.runtime.ports import ImageService, RuntimeService
from nodelib.clock import Clock
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient


class Machine(Protocol):
    """node/edge/machine.py Machine."""

    def facts(self) -> MachineFacts: ...


@dataclass(frozen=True, slots=True)
class NodeEdges:
    """What the keeper works through. `addresses()`: the node's InternalIPs; raises NodewrightError without any."""

    client: KubeClient
    runtime: RuntimeService
    images: ImageService
    machine: Machine
    events: Events
    clock: Clock
    addresses: Callable[[], Awaitable[tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class NodeHooks:
    """What the keeper asks for when it computes a status, and whom it informs.

    `on_nodes` (None: not wanted) is called with all Nodes whenever one of them is added, removed or changes its
    addresses or pod ranges; it may not block. `own_node` is set to this Node as the API last showed it. `extras()`:
    what plugins add to the status; `problems()`: why this node is not ready, beside the runtime's reasons;
    `conditions()`: more conditions; `pressures()`: the pressure conditions that hold now. Call poke() when one of
    these changes.
    """

    on_nodes: Callable[[list[NodePlace]], None] | None = None
    extras: Callable[[], NodeExtras] = NodeExtras
    own_node: Observable[Json | None] = field(default_factory=lambda: Observable(None))
    problems: Callable[[], list[str]] = list
    conditions: Callable[[], list[NodeCondition]] = list
    pressures: Callable[[], Iterable[str]] = tuple


@dataclass(frozen=True, slots=True)
class NodeTimes:
    """Seconds: how often the status is computed, how often it is sent although nothing changed, and how long the
    status waits for a list of images."""

    update: float = 10.0
    report: float = 300.0
    answer: float = 10.0
