"""What a node itself says for the page of `view`: what it did for its pods, its images, its evictions, its daemons."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

from agent.common.edge.inotify import Inotify
from agent.explain.plan.document import from_json, usable
from agent.images.model.images import ImageReport
from agent.images.plan.image_holds import hold_text
from cli.commands import images
from cli.why.recorded import as_steps
from cli.why.sources import asked, sockets
from controlplane.cluster.model import Cluster
from controlplane.supervisor.edge import units
from controlplane.supervisor.edge.procfs import age
from nodelib.errors import NodewrightError
from nodelib.json_values import Json, objects_in
from nodelib.shapes import NUMBER, shaped
from nodelib.tasks import cancel_and_wait
from view.model.nodes import Daemon, DiskHolders, Evicted, Image, ImageDisk, NodeWork, PodDisk, Threshold
from view.model.pods import PodRecord, Pull
from view.plan.node_work import averages

_PODS = 1000
_FRESH = 30.0  # seconds
_SEVERAL = 3  # of a kind of step, so that it is no average of the very one beside which it stands
_NODES = 100  # whose averages are kept
_EVICTED = 20
_LEVELS = 30
_HOLDERS = 100  # pods, and parts of one
_DISK: dict[str, Any] = {
    "used!": int,
    "left_out": int,
    "pods": [
        {
            "namespace!": str,
            "name!": str,
            "used!": int,
            "parts": [{"kind!": str, "name!": str, "used!": int, "unread": str}],
        }
    ],
}
_SHAPE: dict[str, Any] = {
    "levels": [
        {
            "signal!": str,
            "available!": int,
            "capacity!": int,
            "least!": int,
            "grace!": NUMBER,
            "since!": NUMBER,
        }
    ],
    "evicted": [{"namespace!": str, "name!": str, "at!": NUMBER, "message!": str}],
}


async def work_of(cluster: Cluster | None, node: str) -> NodeWork:
    """What the node's agent answers, and what its supervisor wrote down. Any of them may be down."""
    ways = sockets(cluster)
    socket = ways.get(node, "") if cluster is not None else next(iter(ways.values()), "")
    *answers, (holders, unknown) = await asyncio.gather(
        *(asked(socket, what) for what in ("/why", "/images", "/eviction", "/disk"))
    )
    (pods, _), (disk, _), (levels, _) = answers
    report = images.parse(known) if (known := images.usable(disk)) is not None else None
    daemons = await asyncio.to_thread(lambda: tuple(_daemons(cluster, node)))
    if cluster is None and (report is None or report.node != node):
        return NodeWork(silent=("no agent of this node answers on this machine",))
    pressure: Json = shaped(levels, _SHAPE) or {}
    return NodeWork(
        await asyncio.to_thread(lambda: tuple(_records(pods))),
        None if report is None else _disk(report),
        _holders(holders, unknown),
        tuple(Threshold(**one) for one in pressure.get("levels", [])[:_LEVELS]),
        tuple(_evicted(one) for one in pressure.get("evicted", [])[-_EVICTED:]),
        daemons,
        tuple(dict.fromkeys(why for found, why in answers if found is None)),
    )


class Averages:
    """How long each kind of step takes on a node, asked anew when it is old."""

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._kept: dict[str, tuple[float, Mapping[str, float]]] = {}

    async def of(self, node: str) -> Mapping[str, float]:
        """By kind, in seconds; of no more than what the node's agent has done itself."""
        at, found = self._kept.get(node, (0.0, {}))
        if not at or time.monotonic() - at > _FRESH:
            ways = sockets(self._cluster)
            socket = ways.get(node, "") if self._cluster is not None else next(iter(ways.values()), "")
            pods, _ = await asked(socket, "/why")
            records = await asyncio.to_thread(lambda: tuple(_records(pods)))
            found = {kind: one["seconds"] for kind, one in averages(records).items() if one["count"] >= _SEVERAL}
            self._kept = {**dict(list(self._kept.items())[-_NODES:]), node: (time.monotonic(), found)}
        return found


@contextlib.asynccontextmanager
async def news_of(cluster: Cluster | None, node: str, on_change: Callable[[], None]) -> AsyncIterator[None]:
    """A supervisor writes down each start and end of a program: the kernel tells of that."""
    if cluster is None or node not in [one.name for one in cluster.nodes]:
        yield
        return
    inotify = Inotify("a node's supervisor")
    try:
        watch = inotify.watch(cluster.unit_dir(node))
    except NodewrightError:  # the node has just been removed
        inotify.close()
        yield
        return
    task = asyncio.create_task(_tell(watch.changed, on_change), name="watch daemons")
    try:
        yield
    finally:
        await cancel_and_wait(task)
        inotify.close()


async def _tell(changed: Callable[[], Awaitable[None]], on_change: Callable[[], None]) -> None:
    while True:
        await changed()
        on_change()


def _records(found: Json | None) -> Iterator[PodRecord]:
    for one in objects_in((found or {}).get("pods"))[:_PODS]:
        known = usable(one)
        if known is not None:
            explained = from_json(known)
            pulls = tuple(
                Pull(wait.on, wait.progress, wait.share, wait.since or 0.0)
                for wait in explained.waits
                if wait.reason == "Pulling"
            )
            yield PodRecord((explained.namespace, explained.name), as_steps(explained.timeline), pulls)


def _disk(report: ImageReport) -> ImageDisk:
    held = tuple(Image(one.name, one.size, hold_text(one) if one.holds else "") for one in report.images)
    words = tuple(line.strip() for line in images.summary(report, time.time()))
    return ImageDisk(report.capacity, report.available, report.high, report.low, held, words)


def _holders(found: Json | None, unknown: str) -> DiskHolders:
    report = shaped(found, _DISK)
    if report is None:
        return DiskHolders(unknown=unknown or "its agent answers nothing about that")
    pods = tuple(_pod_disk(one) for one in report.get("pods", [])[:_HOLDERS])
    return DiskHolders(report["used"], pods, report.get("left_out", 0) + max(0, len(report.get("pods", [])) - _HOLDERS))


def _pod_disk(one: Json) -> PodDisk:
    parts = tuple((_part(part), part["used"]) for part in one.get("parts", [])[:_HOLDERS])
    return PodDisk((one["namespace"], one["name"]), one["used"], parts)


def _part(part: Json) -> str:
    words = {"volume": "volume {}", "log": "log of container {}", "files": "files that container {} wrote"}
    what = words.get(part["kind"], "its own files").format(part["name"])
    return f"{what} (at least: {part['unread']})" if part.get("unread") else what


def _evicted(one: Json) -> Evicted:
    return Evicted(f"{one['namespace']}/{one['name']}", one["at"], one["message"])


def _daemons(cluster: Cluster | None, node: str) -> Iterator[Daemon]:
    if cluster is None or node not in [one.name for one in cluster.nodes]:
        return
    for name, row in units.programs(cluster.unit_dir(node)).items():
        pid, alive = int(row["pid"]), bool(row["alive"])
        yield Daemon(name, alive, pid, age(pid) if alive else 0.0, int(row["starts"]), str(row["last_exit"]))
