"""/why: why each pod is in its state; /images: what holds the images; /eviction: how near the node is to evicting;
/disk: which pods hold its disk.

All are served to root on a unix socket of mode 0600, with or without an API server, and on port 10250, where they
are authorized as nodes/proxy.
"""

from __future__ import annotations

from dataclasses import asdict

from aiohttp import web

from agent.explain.plan.document import to_json
from agent.server.ports import EvictionReports, Explains, ImageReports
from agent.server.work.responses import Refused, json
from agent.stats.plan.disk_report import disk_report
from agent.stats.work.provider import StatsProvider


class Why:
    """GET /why and GET /why/{namespace}/{pod}: Explanations (agent.explain.model) as JSON."""

    def __init__(self, explains: Explains) -> None:
        self._explains = explains

    async def all(self, request: web.Request) -> web.Response:
        return json({"pods": [to_json(one) for one in await self._explains.all()]})

    async def pod(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        found = await self._explains.pod(namespace, name)
        if found is None:
            raise Refused(404, f'this node has no pod "{namespace}/{name}"\n')
        return json(to_json(found))


class Images:
    """GET /images: an ImageReport (agent.images.model.images) as JSON."""

    def __init__(self, images: ImageReports) -> None:
        self._images = images

    async def report(self, request: web.Request) -> web.Response:
        return json(asdict(await self._images.report()))


class Evictions:
    """GET /eviction: an EvictionReport (agent.eviction.model) as JSON."""

    def __init__(self, eviction: EvictionReports) -> None:
        self._eviction = eviction

    async def report(self, request: web.Request) -> web.Response:
        return json(asdict(self._eviction.report()))


class Disks:
    """GET /disk: a DiskReport (agent.stats.plan.disk_report) as JSON. It measures no more often than /stats/summary."""

    def __init__(self, stats: StatsProvider) -> None:
        self._stats = stats

    async def report(self, request: web.Request) -> web.Response:
        return json(asdict(disk_report(await self._stats.snapshot(storage=True))))
