"""Joins what the pods' workers use: volumes, container configurations, images, hooks, files, status reports."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from agent.build import derive
from agent.build.base import Base
from agent.build.checkpoints import Checkpoints
from agent.build.gates import Gates
from agent.build.images import build_pull_credentials, pull_rate
from agent.build.plugins import BuiltPlugins
from agent.build.tracing import pod_tracing
from agent.build.volumes import BuiltVolumes, build_volumes, object_store
from agent.common.model.pods import Pod
from agent.containers.work.configs import CgroupFacts
from agent.images.edge.image_content import ImageContent
from agent.images.edge.service_accounts import ServiceAccounts
from agent.images.work.images import ImageManager, ImageManagerDeps
from agent.images.work.pull_progress import PullWatcher
from agent.images.work.pull_secrets import PullSecrets, UnreadSecrets
from agent.node.work.node import NodeManager
from agent.pods.edge.api_pods import PodsApi
from agent.pods.edge.hook_http import HttpHooks
from agent.pods.ports import PodCgroups
from agent.pods.work.deps import ContainerDeps, PodDeps, ResourceDeps, StatusDeps
from agent.pods.work.ends import Ends
from agent.pods.work.hooks import Hooks
from agent.pods.work.plan_turns import PlanTurns
from agent.pods.work.start_notes import note_shown_ready
from agent.pods.work.startup_latency import StartupLatencyTracker
from agent.pods.work.status_manager import StatusManager
from agent.pods.work.volume_refreshes import VolumeRefreshes
from agent.probes.work import ProbeManager
from agent.userns.work import UserNamespaces
from agent.volumes.work.csi_volumes import CsiVolumes
from agent.volumes.work.volume_expander import VolumeExpander


def pod_volumes(
    base: Base, keeper: NodeManager, cgroups: CgroupFacts, csi: CsiVolumes, user_namespaces: UserNamespaces
) -> BuiltVolumes:
    """The volumes of pods and their container configurations."""
    return build_volumes(
        base.connections.named,
        base.settings.pod_defaults,
        clock=base.clock,
        node=lambda: derive.node_context(base.settings, keeper, base.addresses.current),
        cgroups=cgroups,
        notify=base.pods.refresh,
        warn=lambda pod, reason, message: base.events.emit(pod.raw, "Warning", reason, message),
        csi=csi,
        user_namespaces=user_namespaces,
        store=object_store(
            base.connections.named,
            base.settings.objects,
            clock=base.clock,
            notify=base.pods.refresh,
            own_node=lambda: base.own_node.now,
        ),
        measured=base.metrics.storage_operation,
    )


def volume_expander(base: Base, volumes: BuiltVolumes, plugins: BuiltPlugins) -> VolumeExpander:
    """Grows the volumes of every kind that can."""
    return VolumeExpander((plugins.csi_growth, volumes.local), plugins.expansion, base.events, base.clock)


def pod_deps(
    base: Base,
    keeper: NodeManager,
    built: BuiltVolumes,
    cgroups: PodCgroups,
    checkpoints: Checkpoints,
    plugins: BuiltPlugins,
    probes: ProbeManager,
    gates: Gates,
    mirror: Callable[[Pod], Pod | None],
) -> PodDeps:
    """The dependencies of the pods' workers. `mirror` finds the mirror pod of a static pod."""
    settings, cri, clock, metrics = base.settings, base.connections.cri, base.clock, base.metrics
    startups = StartupLatencyTracker(metrics, clock)
    api = PodsApi(base.connections.statuses)
    unread = UnreadSecrets()
    image_deps = ImageManagerDeps(
        images=cri,
        credentials=build_pull_credentials(
            settings,
            PullSecrets(built.objects, built.warnings, unread),
            clock,
            metrics,
            None if settings.standalone else ServiceAccounts(base.connections.named, clock.now),
        ),
        events=base.events,
        clock=clock,
        records=checkpoints.pulls,
        metrics=metrics,
        on_pulled=startups.pulled,
        watch=PullWatcher(ImageContent(settings.runtime.image_endpoint), clock),
        unread_secrets=unread,
    )
    return PodDeps(
        resources=ResourceDeps(
            volumes=built.manager,
            cgroups=cgroups,
            devices=plugins.devices,
            claims=plugins.claims,
            managers=checkpoints.managers,
            allocations=checkpoints.allocations,
            user_namespaces=checkpoints.user_namespaces,
            warnings=built.warnings,
            volume_refreshes=VolumeRefreshes(built.manager, base.pods.refresh, clock),
        ),
        containers=ContainerDeps(
            runtime=cri,
            configs=built.configs,
            images=ImageManager(image_deps, settings.images.parallel_pulls or 32, rate=pull_rate(settings, clock)),
            hooks=Hooks(
                cri,
                HttpHooks(base.host_resolver, base.handshakes.turns_for, metrics.hook_http_fallbacks.inc),
                clock,
                metrics.sleep_terminated.inc,
            ),
            files=base.pod_files,
            sandbox_gate=gates.sandboxes,
            start_gate=gates.starts,
            update_gate=gates.updates,
            ends=Ends(gates.ends, gates.ends_beside_starts),
            release_gate=gates.releases,
            restarts=settings.restarts,
        ),
        status=StatusDeps(
            probes=probes,
            manager=StatusManager(api, clock, metrics, partial(_note_shown_ready, base)),
            api=api,
            startups=startups,
            terminations=checkpoints.terminations,
            mirror=mirror,
            computed=base.pods.report_changed,
        ),
        observer=base.observer,
        events=base.events,
        metrics=metrics,
        clock=clock,
        plan_turns=PlanTurns(time.thread_time),
        host_ips=lambda: base.addresses.current,
        network_ready=lambda: keeper.runtime.network_ready,
        tracing=pod_tracing(base),
    )


def _note_shown_ready(base: Base, uid: str) -> None:
    """`uid`: of the pod, or of the mirror of a static pod."""
    mirrored = (one for one in base.pods.memories() if one.mirror_uid == uid)
    memory = base.pods.memory(uid) or next(mirrored, None)
    if memory is not None:
        note_shown_ready(memory, base.clock)
