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
from agent.images.edge.image_content import ImageContent
from agent.images.work.images import ImageManager, ImageManagerDeps
from agent.images.work.pull_progress import PullWatcher
from agent.node.work.node import NodeKeeper
from agent.pods.edge.api_pods import PodsApi
from agent.pods.edge.hook_http import HttpHooks
from agent.pods.edge.pod_files import PodFiles
from agent.pods.ports import PodCgroups
from agent.pods.work.hooks import Hooks
from agent.pods.work.parts import Parts
from agent.pods.work.pod_table import PodTable
from agent.pods.work.report import Reporter
from agent.pods.work.startup import StartupLatencyTracker
from agent.probes.work import ProbeKeeper
from agent.runtime.work.relist import Observer
from agent.volumes.work.csi import CsiVolumes
from agent.volumes.work.world import CgroupFacts


def pod_materials(
    ground: Base, keeper: NodeKeeper, table: PodTable, cgroups: CgroupFacts, csi: CsiVolumes
) -> BuiltVolumes:
    """Volumes, hosts files and cgroups of pods, and what keeps them up to date."""
    return build_volumes(
        ground.made.api,
        derive.material_settings(ground.settings),
        clock=ground.clock,
        node=lambda: derive.material_node(keeper, ground.addresses.current),
        cgroups=cgroups,
        notify=table.refresh,
        warn=lambda pod, reason, message: ground.events.emit(pod.raw, "Warning", reason, message),
        csi=csi,
    )


def pod_parts(
    ground: Base,
    keeper: NodeKeeper,
    table: PodTable,
    built: BuiltVolumes,
    cgroups: PodCgroups,
    ledgers: Checkpoints,
    plugins: BuiltPlugins,
    probes: ProbeKeeper,
    mirror: Callable[[Pod], Pod | None],
) -> Parts:
    """What the pods' workers work with."""
    settings, cri, clock, metrics = ground.settings, ground.made.cri, ground.clock, ground.metrics
    files = PodFiles(settings.paths.pod_logs_dir, settings.paths.container_logs_dir)
    startups = StartupLatencyTracker(metrics, clock)
    api = PodsApi(ground.made.api)
    image_deps = ImageManagerDeps(
        images=cri,
        credentials=build_pull_credentials(settings, built.materials, clock),
        events=ground.events,
        clock=clock,
        records=ledgers.pulls,
        figures=metrics,
        on_pulled=startups.pulled,
        watch=PullWatcher(ImageContent(settings.runtime.endpoint), clock),
    )
    images = ImageManager(image_deps, settings.images.parallel_pulls or 32)
    return Parts(
        runtime=cri,
        images=images,
        materials=built.materials,
        cgroups=cgroups,
        allocations=ledgers.allocations,
        endings=ledgers.endings,
        managers=ledgers.managers,
        devices=plugins.devices,
        claims=plugins.claims,
        probes=probes,
        events=ground.events,
        api=api,
        reporter=Reporter(api, clock, metrics),
        observer=Observer(cri, files, clock, table.on_seen, metrics),
        files=files,
        hooks=Hooks(cri, HttpHooks(), clock),
        figures=metrics,
        startups=startups,
        clock=clock,
        host_ips=lambda: ground.addresses.current,
        network_ready=lambda: keeper.runtime.network_ready,
        mirror=mirror,
        sandboxes=Gate(2 * ground.machine.facts().cpus),
    )
