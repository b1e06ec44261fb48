"""What a pod's worker and its steps work with, grouped by what the steps are about. Made by agent/build/pods.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.common.metrics import Metrics
from agent.common.model.pods import Pod
from agent.common.ports import Events, PodFiles
from agent.common.work.gate import Gate
from agent.common.work.pod_warnings import PodWarnings
from agent.devices.work.devices import DeviceManager
from agent.devices.work.dra import DraManager
from agent.images.work.images import ImageManager
from agent.managers.work import ResourceManagers
from agent.pods.ports import ApiPods, ContainerConfigs, PodCgroups, PodVolumes, Probes
from agent.pods.work.deferred_removal import DeferredRemoval
from agent.pods.work.hooks import Hooks
from agent.pods.work.startup import StartupLatencyTracker
from agent.pods.work.status_manager import StatusManager
from agent.pods.work.terminations import Terminations
from agent.pods.work.volume_refreshes import VolumeRefreshes
from agent.resources.work.allocations import Allocations
from agent.runtime.model import RuntimeService
from agent.runtime.work.relist import Observer
from nodelib.clock import Clock


@dataclass(frozen=True, slots=True)
class ResourceDeps:
    """What a pod holds of the node, from Prepare to Release: volumes, cgroups, devices, claims, CPUs and memory."""

    volumes: PodVolumes
    cgroups: PodCgroups
    devices: DeviceManager
    claims: DraManager
    managers: ResourceManagers
    allocations: Allocations
    warnings: PodWarnings
    volume_refreshes: VolumeRefreshes


@dataclass(frozen=True, slots=True)
class ContainerDeps:
    """What sandboxes and containers are made, started and stopped with.

    `sandbox_gate`: sandboxes that are made at once; `takeover_gate`: running pods that a new agent takes over at once.
    """

    runtime: RuntimeService
    configs: ContainerConfigs
    images: ImageManager
    hooks: Hooks
    files: PodFiles
    deferred_removal: DeferredRemoval = field(default_factory=DeferredRemoval)
    sandbox_gate: Gate = field(default_factory=Gate)
    takeover_gate: Gate = field(default_factory=Gate)


@dataclass(frozen=True, slots=True)
class StatusDeps:
    """What a status is made of and sent by. `mirror` gives a static pod's mirror pod."""

    probes: Probes
    manager: StatusManager
    api: ApiPods
    startups: StartupLatencyTracker
    terminations: Terminations
    mirror: Callable[[Pod], Pod | None] = lambda pod: None


@dataclass(frozen=True, slots=True)
class PodDeps:
    """`host_ips` and `network_ready` are called for each plan."""

    resources: ResourceDeps
    containers: ContainerDeps
    status: StatusDeps
    observer: Observer
    events: Events
    metrics: Metrics
    clock: Clock
    host_ips: Callable[[], tuple[str, ...]]
    network_ready: Callable[[], bool] = lambda: True
