"""The parts that the pods' workers work with."""

from __future__ import annotations

from collections.abc import Callable

from agent.build import derive
from agent.build.base import Base
from agent.build.checkpoints import Checkpoints
from agent.build.images import build_pull_credentials
from agent.build.plugins import BuiltPlugins
from agent.build.volumes import BuiltVolumes, build_volumes
from agent.common.model.pods import Pod
from agent.common.work.gate import Gate
from agent.containers.work.configs import CgroupFacts
from agent.images.edge.image_content import ImageContent
from agent.images.work.images import ImageManager, ImageManagerDeps
from agent.images.work.pull_progress import PullWatcher
from agent.images.work.pull_secrets import PullSecrets
from agent.node.work.node import NodeKeeper
from agent.pods.edge.api_pods import PodsApi
from agent.pods.edge.hook_http import HttpHooks
from agent.pods.edge.pod_files import PodFiles
from agent.pods.ports import PodCgroups
from agent.pods.work.hooks import Hooks
from agent.pods.work.parts import Parts
from agent.pods.work.refreshes import Refreshes
from agent.pods.work.report import Reporter
from agent.pods.work.startup import StartupLatencyTracker
from agent.probes.work import ProbeKeeper
from agent.runtime.work.relist import Observer
from agent.volumes.work.csi_volumes import CsiVolumes


def pod_volumes(base: Base, keeper: NodeKeeper, cgroups: CgroupFacts, csi: CsiVolumes) -> BuiltVolumes:
    """The volumes of pods, their container configurations, and what keeps them up to date."""
    return build_volumes(
        base.connections.api,
        base.settings.pod_defaults,
        clock=base.clock,
        node=lambda: derive.node_context(keeper, base.addresses.current),
        cgroups=cgroups,
        notify=base.pods.refresh,
        warn=lambda pod, reason, message: base.events.emit(pod.raw, "Warning", reason, message),
        csi=csi,
    )


def pod_parts(
    base: Base,
    keeper: NodeKeeper,
    built: BuiltVolumes,
    cgroups: PodCgroups,
    checkpoints: Checkpoints,
    plugins: BuiltPlugins,
    probes: ProbeKeeper,
    mirror: Callable[[Pod], Pod | None],
) -> Parts:
    """What the pods' workers work with."""
    settings, cri, clock, metrics = base.settings, base.connections.cri, base.clock, base.metrics
    files = PodFiles(settings.paths.pod_logs_dir, settings.paths.container_logs_dir)
    startups = StartupLatencyTracker(metrics, clock)
    api = PodsApi(base.connections.api)
    image_deps = ImageManagerDeps(
        images=cri,
        credentials=build_pull_credentials(settings, PullSecrets(built.objects, built.warnings), clock),
        events=base.events,
        clock=clock,
        records=checkpoints.pulls,
        metrics=metrics,
        on_pulled=startups.pulled,
        watch=PullWatcher(ImageContent(settings.runtime.endpoint), clock),
    )
    images = ImageManager(image_deps, settings.images.parallel_pulls or 32)
    return Parts(
        runtime=cri,
        images=images,
        volumes=built.manager,
        configs=built.configs,
        cgroups=cgroups,
        allocations=checkpoints.allocations,
        terminations=checkpoints.terminations,
        managers=checkpoints.managers,
        devices=plugins.devices,
        claims=plugins.claims,
        probes=probes,
        events=base.events,
        warnings=built.warnings,
        api=api,
        reporter=Reporter(api, clock, metrics),
        observer=Observer(cri, files, clock, metrics),
        files=files,
        hooks=Hooks(cri, HttpHooks(), clock),
        metrics=metrics,
        refreshes=Refreshes(built.manager, base.pods.refresh),
        startups=startups,
        clock=clock,
        host_ips=lambda: base.addresses.current,
        network_ready=lambda: keeper.runtime.network_ready,
        mirror=mirror,
        sandboxes=Gate(2 * base.machine.facts().cpus),
    )
