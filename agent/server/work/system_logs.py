"""/logs: the host's log folder, as upstream's file server shows it."""

from __future__ import annotations

import asyncio
import html
from urllib.parse import quote

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter

from agent.server.model import SystemLogFile, SystemLogFolder
from agent.server.work.dependencies import ServerDeps
from agent.server.work.node_logs import NodeLogs
from agent.server.work.responses import Refused


class SystemLogs:
    """GET /logs/{path}: a file as text, a folder as a list of links. A query, if enabled, is answered by NodeLogs."""

    def __init__(self, deps: ServerDeps) -> None:
        self._files, self._root = deps.edges.system_logs, deps.node.system_log_dir
        enabled = deps.settings.system_log_query
        self._queries = NodeLogs(self._files, deps.edges.journal, self._root) if enabled else None

    async def get(self, request: web.Request) -> web.StreamResponse:
        if self._queries is None:
            if request.query.get("query"):
                raise Refused(400, "the node log query is not enabled on this kubelet (enableSystemLogQuery)")
        elif (query := await self._queries.query(request)) is not None:
            if query.services:
                return await self._queries.send(request, query)
            return _Opened(await self._queries.file(query))
        found = await asyncio.to_thread(self._files.find, self._root, request.match_info.get("path", ""))
        if found is None:
            raise Refused(404, "404 page not found\n")
        if isinstance(found, SystemLogFolder):
            return _listing(found)
        return _Opened(found)


class _Opened(web.FileResponse):
    """The file that was found, whatever is at its path by now. It is closed with the response."""

    def __init__(self, found: SystemLogFile) -> None:
        super().__init__(f"/proc/self/fd/{found.file.fileno()}", headers={"Content-Type": "text/plain; charset=utf-8"})
        self._found = found

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        try:
            return await super().prepare(request)
        finally:
            self._found.file.close()


def _listing(folder: SystemLogFolder) -> web.Response:
    links = "".join(f'<a href="{quote(name)}">{html.escape(name)}</a>\n' for name in folder.names)
    more = "and more, which are not shown\n" if folder.more else ""
    return web.Response(text=f"<pre>\n{links}{more}</pre>\n", content_type="text/html")
