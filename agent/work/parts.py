"""Everything a pod's worker works with, in one value; made once by the composition root."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from agent.figures import Figures
from agent.model.pods import Pod
from agent.ports import ApiPods, Events, Files, PodCgroups, PodMaterials, Probes, Runtime
from agent.work.allocations import Allocations
from agent.work.devices import DeviceDesk
from agent.work.dra import ClaimDesk
from agent.work.endings import Endings
from agent.work.exclusive import ExclusiveDesk
from agent.work.gate import Gate
from agent.work.hooks import Hooks
from agent.work.images import ImageDesk
from agent.work.leftovers import Leftovers
from agent.work.relist import Observer
from agent.work.report import Reporter
from agent.work.startup import Startups
from nodelib.clock import Clock


@dataclass(frozen=True, slots=True)
class Parts:
    """`host_ips` and `network_ready` are asked for at each plan; `mirror` gives a static pod's mirror pod."""

    runtime: Runtime
    images: ImageDesk
    materials: PodMaterials
    cgroups: PodCgroups
    allocations: Allocations
    endings: Endings
    exclusive: ExclusiveDesk
    devices: DeviceDesk
    claims: ClaimDesk
    probes: Probes
    events: Events
    api: ApiPods
    reporter: Reporter
    observer: Observer
    files: Files
    hooks: Hooks
    figures: Figures
    startups: Startups
    clock: Clock
    host_ips: Callable[[], tuple[str, ...]]
    network_ready: Callable[[], bool] = lambda: True
    mirror: Callable[[Pod], Pod | None] = lambda pod: None
    leftovers: Leftovers = field(default_factory=Leftovers)
    sandboxes: Gate = field(default_factory=Gate)  # that are being made
    takeovers: Gate = field(default_factory=Gate)  # of pods that run already, by an agent that has just started
