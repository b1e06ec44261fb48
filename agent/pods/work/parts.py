"""Everything a pod's worker works with, in one value; made once by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.common.metrics_port import Figures
from agent.common.model.pods import Pod
from agent.common.ports import Events, PodFiles
from agent.common.work.gate import Gate
from agent.common.work.observable import Signal
from agent.devices.work.devices import DeviceManager
from agent.devices.work.dra import DraManager
from agent.images.work.images import ImageManager
from agent.managers.work import ResourceManagers
from agent.pods.ports import ApiPods, PodCgroups, PodMaterials, Probes
from agent.pods.work.deferred_removal import DeferredRemoval
from agent.pods.work.hooks import Hooks
from agent.pods.work.refreshes import Refreshes
from agent.pods.work.report import Reporter
from agent.pods.work.startup import StartupLatencyTracker
from agent.pods.work.terminations import Terminations
from agent.resources.work.allocations import Allocations
from agent.runtime.model import RuntimeService
from agent.runtime.work.relist import Observer
from nodelib.clock import Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """`host_ips` and `network_ready` are asked for at each plan; `mirror` gives a static pod's mirror pod.

    `released` fires when a pod has released what it held.
    """

    runtime: RuntimeService
    images: ImageManager
    materials: PodMaterials
    cgroups: PodCgroups
    allocations: Allocations
    endings: Terminations
    exclusive: ResourceManagers
    devices: DeviceManager
    claims: DraManager
    probes: Probes
    events: Events
    api: ApiPods
    reporter: Reporter
    observer: Observer
    files: PodFiles
    hooks: Hooks
    figures: Figures
    refreshes: Refreshes
    startups: StartupLatencyTracker
    clock: Clock
    host_ips: Callable[[], tuple[str, ...]]
    network_ready: Callable[[], bool] = lambda: True
    mirror: Callable[[Pod], Pod | None] = lambda pod: None
    leftovers: DeferredRemoval = field(default_factory=DeferredRemoval)
    released: Signal = field(default_factory=Signal)
    sandboxes: Gate = field(default_factory=Gate)  # that are being made
    takeovers: Gate = field(default_factory=Gate)  # of pods that run already, by an agent that has just started
