"""The node's local socket: why each pod is as it is, for root on this machine, with or without an API server.

GET /why, GET /why/{namespace}/{pod} and GET /images on a unix socket of mode 0600: whoever may open it may read
everything here anyway. The same paths are on :10250, authorized as nodes/proxy.
"""

from __future__ import annotations

import logging
import os
from dataclasses import asdict

from aiohttp import web

from agent.explain.model import Explanation
from agent.server.ports import Explains, ImageReports
from agent.server.work.answers import Refused, json

log = logging.getLogger(__name__)


class Why:
    """The endpoints."""

    def __init__(self, explains: Explains) -> None:
        self._explains = explains

    async def all(self, request: web.Request) -> web.Response:
        return json({"pods": [document(one) for one in await self._explains.all()]})

    async def pod(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["pod"]
        found = await self._explains.pod(namespace, name)
        if found is None:
            raise Refused(404, f'this node has no pod "{namespace}/{name}"\n')
        return json(document(found))


def document(found: Explanation) -> dict[str, object]:
    """As JSON: the fields of agent.explain.model."""
    return asdict(found)


def add_images(app: web.Application, images: ImageReports) -> None:
    """GET /images: an ImageReport."""

    async def report(request: web.Request) -> web.Response:
        return json(asdict(await images.report()))

    app.router.add_get("/images", report, allow_head=False)


def add_why(app: web.Application, explains: Explains) -> None:
    why = Why(explains)
    app.router.add_get("/why", why.all, allow_head=False)
    app.router.add_get("/why/{namespace}/{pod}", why.pod, allow_head=False)


async def listen(runner: web.AppRunner, path: str) -> None:
    """Serve on a socket at `path`. Without it everything else of the agent works: a failure is logged."""
    # Bound under another name and renamed, so that the socket is never there with a wider mode.
    draft = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        await web.UnixSite(runner, draft).start()
        os.chmod(draft, 0o600)
        os.rename(draft, path)
    except OSError as error:
        log.warning("no local socket at %s: %s; `nodewright why` has no word of this node", path, error.strerror)
