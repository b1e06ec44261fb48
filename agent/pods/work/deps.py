"""The dependencies of pod workers and their steps, grouped by kind of step. agent/build/pods.py makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.common.metrics import Metrics
from agent.common.model.pods import Pod
from agent.common.model.states import BackOffBounds
from agent.common.ports import Events, PodFiles
from agent.common.work.gate import Gate
from agent.common.work.observable import Signal
from agent.common.work.pod_warnings import PodWarnings
from agent.devices.work.devices import DeviceManager
from agent.devices.work.dra import DraManager
from agent.images.work.images import ImageManager
from agent.managers.work import ResourceManagers
from agent.pods.ports import ApiPods, ContainerConfigs, PodCgroups, PodVolumes, Probes
from agent.pods.work.deferred_removal import DeferredRemoval
from agent.pods.work.ends import Ends
from agent.pods.work.hooks import Hooks
from agent.pods.work.memory import PodMemory
from agent.pods.work.plan_turns import PlanTurns
from agent.pods.work.startup_latency import StartupLatencyTracker
from agent.pods.work.status_manager import StatusManager
from agent.pods.work.terminations import Terminations
from agent.pods.work.tracing import PodTracing
from agent.pods.work.volume_refreshes import VolumeRefreshes
from agent.resources.work.allocations import Allocations
from agent.runtime.ports import RuntimeService
from agent.runtime.work.observer import Observer
from agent.userns.work import UserNamespaces
from nodelib.clock import Clock


@dataclass(frozen=True, slots=True)
class ResourceDeps:
    """For what a pod holds until Release: volumes, cgroup, devices, claims, exclusive CPUs and memory, IDs of users.

    `released` fires when a pod has released all of it.
    """

    volumes: PodVolumes
    cgroups: PodCgroups
    devices: DeviceManager
    claims: DraManager
    managers: ResourceManagers
    allocations: Allocations
    user_namespaces: UserNamespaces
    warnings: PodWarnings
    volume_refreshes: VolumeRefreshes
    released: Signal = field(default_factory=Signal)


@dataclass(frozen=True, slots=True)
class ContainerDeps:
    """For creating, starting and stopping sandboxes and containers.

    `sandbox_gate` limits how many sandboxes are made at once; `takeover_gate`, how many running pods a restarted agent
    prepares at once; `start_gate`, how many containers are started at once, and `update_gate`, how many updates of
    resources are made at once, as each is some processes of the runtime; `release_gate`, how many pods are cleaned up
    at once. `restarts`: the back-off of containers that end again and again.
    """

    runtime: RuntimeService
    configs: ContainerConfigs
    images: ImageManager
    hooks: Hooks
    files: PodFiles
    sandbox_gate: Gate
    start_gate: Gate
    update_gate: Gate
    ends: Ends
    release_gate: Gate
    takeover_gate: Gate = field(default_factory=Gate)
    deferred_removal: DeferredRemoval = field(default_factory=DeferredRemoval)
    restarts: BackOffBounds = field(default_factory=BackOffBounds)


@dataclass(frozen=True, slots=True)
class StatusDeps:
    """For computing and sending statuses. `mirror` returns the mirror pod of a static pod.

    `computed(memory)` is called after each status that was computed.
    """

    probes: Probes
    manager: StatusManager
    api: ApiPods
    startups: StartupLatencyTracker
    terminations: Terminations
    mirror: Callable[[Pod], Pod | None] = lambda pod: None
    computed: Callable[[PodMemory], None] = lambda memory: None


@dataclass(frozen=True, slots=True)
class PodDeps:
    """Everything; `host_ips` and `network_ready` are called for each plan. `tracing` None: no spans are exported."""

    resources: ResourceDeps
    containers: ContainerDeps
    status: StatusDeps
    observer: Observer
    events: Events
    metrics: Metrics
    clock: Clock
    plan_turns: PlanTurns
    host_ips: Callable[[], tuple[str, ...]]
    network_ready: Callable[[], bool] = lambda: True
    tracing: PodTracing | None = None
