"""Static pods, wired: the sources that the settings name, the pods they want, and their mirror pods."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from agent.common.edge.folder_watch import FolderWatch
from agent.common.model.pods import Json, Pod
from agent.common.work.events import EventRecorder
from agent.node.work.node import NodeKeeper
from agent.pods.edge.api_pods import PodsApi
from agent.pods.plan.mirrors import is_mirror
from agent.pods.work.pod_table import PodTable
from agent.pods.work.report import Reporter
from agent.settings import Settings
from agent.static.edge import ManifestFolder, ManifestUrl
from agent.static.plan.manifest import LARGEST
from agent.static.work.mirrors import MirrorHooks, Mirrors
from agent.static.work.registry import StaticPods
from agent.static.work.sources import Complaints, FileSource, UrlSource
from nodelib.clock import Clock
from nodelib.tasks import Work

log = logging.getLogger(__name__)


def sources(settings: Settings) -> frozenset[str]:
    """Everybody who tells this agent of pods."""
    named = {"api": settings.api.kubeconfig, "file": settings.static.path, "http": settings.static.url}
    return frozenset(name for name, place in named.items() if place)


@dataclass(slots=True)
class StaticParts:
    """`watching`: the directory that is followed, if there is one."""

    table: PodTable
    pods: StaticPods
    mirrors: Mirrors
    keeper: NodeKeeper
    works: dict[str, Work]
    watching: FolderWatch | None = None

    def on_api_pod(self, change: str, raw: Json, old: Json | None) -> None:
        """A change of the API watch: a mirror pod only shows what runs anyway."""
        if is_mirror(raw):
            self.mirrors.on_pod(change, raw, old)
        else:
            self.table.on_pod(change, raw, old)

    async def on_api_pods(self, listed: list[Json]) -> None:
        """The first list of the API."""
        for raw in filter(is_mirror, listed):
            self.mirrors.on_pod("ADDED", raw, None)
        await self.table.first([Pod(raw) for raw in listed if not is_mirror(raw)])

    def tasks(self, audited: asyncio.Event) -> dict[str, Work]:
        """Name -> long-lived work. Nothing starts before the runtime has been seen: running pods would look new."""

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
        """Until cancelled; from when there is a Node that may own them."""
        await self.keeper.registered.wait()
        self.mirrors.poke()
        await self.mirrors.run()


def build_static(
    settings: Settings,
    table: PodTable,
    api: PodsApi,
    events: EventRecorder,
    clock: Clock,
    reporter: Reporter,
    keeper: NodeKeeper,
) -> StaticParts:
    """Call it inside the running loop."""
    pods = StaticPods(table, lambda: mirrors.poke())
    mirrors = Mirrors(
        api,
        pods,
        events,
        clock,
        MirrorHooks(lambda: keeper.uid, table.synced.is_set, table.on_probe, reporter.forget),
    )
    table.on_gone = pods.on_gone

    def tell(is_problem: bool, text: str) -> None:
        log.log(logging.ERROR if is_problem else logging.INFO, "%s", text)
        if is_problem:
            events.emit(keeper.ref, "Warning", "InvalidManifest", text)

    complaints, static, works = Complaints(tell), settings.static, dict[str, Work]()
    watching = None
    if static.path:
        folder = ManifestFolder(static.path, LARGEST)
        watching = FolderWatch(lambda: folder.watched)
        works["manifests"] = FileSource(
            folder, watching, pods, complaints, clock, node_name=settings.node.name, period=static.file_frequency
        ).run
    if static.url:
        url = ManifestUrl(static.url, static.url_headers, LARGEST)
        source = UrlSource(url, pods, complaints, clock, node_name=settings.node.name, period=static.url_frequency)
        works["manifest-url"] = source.run
    return StaticParts(table, pods, mirrors, keeper, works, watching)
