"""The parts that the pods' workers work with."""

from __future__ import annotations

from collections.abc import Callable

from agent import derive
from agent.edge.api_pods import PodsApi
from agent.edge.hook_http import HttpHooks
from agent.edge.image_content import ImageContent
from agent.edge.pod_files import PodFiles
from agent.ground import Ground
from agent.image_access import build_pull_credentials
from agent.ledgers import Ledgers
from agent.materials import BuiltMaterials, build_materials
from agent.model.pods import Pod
from agent.plugins import BuiltPlugins
from agent.ports import PodCgroups
from agent.work.csi import CsiVolumes
from agent.work.gate import Gate
from agent.work.hooks import Hooks
from agent.work.images import DeskParts, ImageDesk
from agent.work.materials.world import CgroupFacts
from agent.work.node import NodeKeeper
from agent.work.parts import Parts
from agent.work.pod_table import PodTable
from agent.work.probes import ProbeKeeper
from agent.work.pull_progress import PullWatch
from agent.work.relist import Observer
from agent.work.report import Reporter
from agent.work.startup import Startups


def pod_materials(
    ground: Ground, keeper: NodeKeeper, table: PodTable, cgroups: CgroupFacts, csi: CsiVolumes
) -> BuiltMaterials:
    """Volumes, hosts files and cgroups of pods, and what keeps them up to date."""
    return build_materials(
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
    ground: Ground,
    keeper: NodeKeeper,
    table: PodTable,
    built: BuiltMaterials,
    cgroups: PodCgroups,
    ledgers: Ledgers,
    plugins: BuiltPlugins,
    probes: ProbeKeeper,
    mirror: Callable[[Pod], Pod | None],
) -> Parts:
    """What the pods' workers work with."""
    settings, cri, clock, metrics = ground.settings, ground.made.cri, ground.clock, ground.metrics
    files = PodFiles(settings.paths.pod_logs_dir, settings.paths.container_logs_dir)
    startups = Startups(metrics, clock)
    api = PodsApi(ground.made.api)
    desk = DeskParts(
        images=cri,
        credentials=build_pull_credentials(settings, built.materials, clock),
        events=ground.events,
        clock=clock,
        records=ledgers.pulls,
        figures=metrics,
        startups=startups,
        watch=PullWatch(ImageContent(settings.runtime.endpoint), clock),
    )
    images = ImageDesk(desk, settings.images.parallel_pulls or 32)
    return Parts(
        runtime=cri,
        images=images,
        materials=built.materials,
        cgroups=cgroups,
        allocations=ledgers.allocations,
        endings=ledgers.endings,
        exclusive=ledgers.exclusive,
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
