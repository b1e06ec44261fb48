"""Joins static pods: the configured sources of manifests, the pods that they list, and their mirror pods."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from agent.build.base import Base
from agent.node.work.node import NodeManager
from agent.pods.edge.api_pods import PodsApi
from agent.pods.work.pod_workers import PodWorkers
from agent.pods.work.status_manager import StatusManager
from agent.static.edge.folder_watch import FolderWatch
from agent.static.edge.manifests import ManifestFolder, ManifestUrl
from agent.static.plan.manifest import LARGEST
from agent.static.work.mirrors import MirrorHooks, MirrorPodManager, MirrorPods
from agent.static.work.sources import FileSource, ProblemReports, UrlSource
from agent.static.work.static_pods import StaticPods
from nodelib.tasks import Work

log = logging.getLogger(__name__)


@dataclass(slots=True)
class StaticParts:
    """`watching` is the watch of the manifest directory, if one is configured."""

    mirrors: MirrorPodManager
    keeper: NodeManager
    works: dict[str, Work]
    watching: FolderWatch | None = None

    def tasks(self, audited: asyncio.Event) -> dict[str, Work]:
        """Name -> long-lived work. It waits for `audited`, the first relist: before it, running pods would look new."""

        def after(work: Work) -> Work:
            async def wait() -> None:
                await audited.wait()
                await work()

            return wait

        return {name: after(work) for name, work in self.works.items()}

    async def close(self) -> None:
        if self.watching is not None:
            await self.watching.close()

    async def keep_mirrors(self) -> None:
        """Run until cancelled, once there is a Node that can own the mirror pods."""
        await self.keeper.registered.wait()
        self.mirrors.poke()
        await self.mirrors.run()


def build_static(
    base: Base, keeper: NodeManager, pod_workers: PodWorkers, mirror_pods: MirrorPods, statuses: StatusManager
) -> StaticParts:
    """Must run inside the event loop."""
    settings, events, clock = base.settings, base.events, base.clock
    pods = StaticPods(pod_workers, base.pods, base.metrics.restarted_pods.labels("true").inc)
    mirrors = MirrorPodManager(
        PodsApi(base.connections.api),
        mirror_pods,
        pods,
        events,
        clock,
        MirrorHooks(lambda: keeper.uid, base.pods.synced.is_set, base.pods.wake, statuses.remove),
    )

    def report(is_problem: bool, text: str) -> None:
        log.log(logging.ERROR if is_problem else logging.INFO, "%s", text)
        if is_problem:
            events.emit(keeper.ref, "Warning", "InvalidManifest", text)

    static, works = settings.static, dict[str, Work]()
    watching = None
    if static.path:
        folder = ManifestFolder(static.path, LARGEST)
        watching = FolderWatch(lambda: folder.watched)
        works["manifests"] = FileSource(
            folder,
            watching,
            pods,
            ProblemReports(report),
            clock,
            node_name=settings.node.name,
            period=static.file_frequency,
        ).run
    if static.url:
        url = ManifestUrl(static.url, static.url_headers, LARGEST)
        problems = ProblemReports(report)
        source = UrlSource(url, pods, problems, clock, node_name=settings.node.name, period=static.url_frequency)
        works["manifest-url"] = source.run
    return StaticParts(mirrors, keeper, works, watching)
