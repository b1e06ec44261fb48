"""Joins the API server's pods with the pod workers and the mirror pods (upstream: pkg/kubelet/config)."""

from __future__ import annotations

from dataclasses import dataclass

from agent.build.base import Base
from agent.common.model.pods import Pod
from agent.pods.plan.mirrors import is_mirror
from agent.pods.work.pod_workers import PodWorkers
from agent.settings import Settings
from agent.static.work.mirrors import MirrorPodManager
from nodelib.json_values import Json
from nodelib.kube.reflector import Reflector


def sources(settings: Settings) -> frozenset[str]:
    """The configured sources of pods: "api", "file" and "http"."""
    named = {"api": settings.api.kubeconfig, "file": settings.static.path, "http": settings.static.url}
    return frozenset(name for name, place in named.items() if place)


@dataclass(frozen=True, slots=True)
class PodSourceRouter:
    """Sorts the API's pods: mirror pods go to the mirror keeper, all others to the pod workers, which run them."""

    pod_workers: PodWorkers
    mirrors: MirrorPodManager

    def on_change(self, change: str, raw: Json, old: Json | None) -> None:
        """Handle one change of the watch."""
        if is_mirror(raw):
            self.mirrors.on_pod(change, raw, old)
        else:
            self.pod_workers.on_pod(change, raw, old)

    async def on_first(self, listed: list[Json]) -> None:
        """Handle the first list."""
        for raw in filter(is_mirror, listed):
            self.mirrors.on_pod("ADDED", raw, None)
        await self.pod_workers.put_all([Pod(raw) for raw in listed if not is_mirror(raw)])

    def synced(self) -> None:
        """All pods of this node have been listed."""
        self.mirrors.api_synced()
        self.pod_workers.mark_synced("api")


def pods_watch(base: Base, pods: PodSourceRouter) -> Reflector:
    """The watch of this node's pods, not started."""
    return Reflector(
        base.connections.api,
        "/api/v1/pods",
        name="pods of this node",
        params={"fieldSelector": f"spec.nodeName={base.settings.node.name}"},
        on_change=pods.on_change,
        on_first=pods.on_first,
    )
