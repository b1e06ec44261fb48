"""/logs/?query=: logs of services, from the journal or from files named after them, and of one file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web
from aiohttp.web_response import ContentCoding

from agent.server.model import SystemLogFile
from agent.server.plan import node_logs
from agent.server.plan.node_logs import BadQuery, LogQuery
from agent.server.ports import Journal, SystemLogFiles
from agent.server.work.responses import Refused
from nodelib.command import CommandError

_UNITS = (node_logs.COMMAND, *node_logs.UNITS)
_LIMIT = 30.0  # seconds for all of a query, as upstream has it
_AT_ONCE = 4  # queries; each reads all of a journal that may have gigabytes


class NodeLogs:
    """Answers the queries of SystemLogs, below the folder `root`."""

    def __init__(self, files: SystemLogFiles, journal: Journal, root: str) -> None:
        self._files, self._journal, self._root = files, journal, root
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._checks = asyncio.Semaphore(1)  # one thread of those that all share

    async def query(self, request: web.Request) -> LogQuery | None:
        """The query of this request, None if it has none. Raises Refused for what upstream refuses."""
        try:
            query = node_logs.parse(list(request.query.items()))
        except BadQuery as error:
            raise Refused(400, f"{error}\n") from error
        if query is None:
            return None
        if request.match_info.get("path", "").strip("/"):
            raise Refused(406, "path not allowed in query mode\n")
        try:
            async with self._checks:
                await asyncio.to_thread(node_logs.check, query)
        except BadQuery as error:
            raise Refused(406, f"{error}\n") from error
        return query

    async def file(self, query: LogQuery) -> SystemLogFile:
        """The file that is asked for; the path may begin with a slash. Raises Refused."""
        path = query.files[0].replace("\\", "/").lstrip("/")
        found = await asyncio.to_thread(self._files.find, self._root, path)
        if not isinstance(found, SystemLogFile):
            raise Refused(406, f"query: Invalid value: {path}: no such file below {self._root}\n")
        return found

    async def send(self, request: web.Request, query: LogQuery) -> web.StreamResponse:
        """The logs of the services that are asked for. What goes wrong in the middle is a line of the answer."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain;charset=UTF-8"})
        if request.headers.get("Accept-Encoding") == "gzip":
            response.enable_compression(ContentCoding.gzip)
        await response.prepare(request)
        try:
            async with asyncio.timeout(_LIMIT), self._turns, aclosing(self._content(query)) as pieces:
                async for piece in pieces:
                    await response.write(piece)
        except TimeoutError:
            await response.write(f"\nerror: the query took longer than {_LIMIT:g} s\n".encode())
        await response.write_eof()
        return response

    async def _content(self, query: LogQuery) -> AsyncGenerator[bytes, None]:
        native, others = node_logs.in_journal(query.services, await self._journal.units(_UNITS))
        if native:
            try:
                async with aclosing(self._journal.read(node_logs.arguments(query, native))) as pieces:
                    async for piece in pieces:
                        yield piece
            except CommandError:
                yield b"\nerror: journal output not available\n"
        if others and query.has_options:
            yield (
                f"\noptions present and query resolved to log files for [{' '.join(others)}]\n"
                "try without specifying options\n"
            ).encode()
            return
        for service in others:
            async with aclosing(self._file_of(service)) as pieces:
                async for piece in pieces:
                    yield piece

    async def _file_of(self, service: str) -> AsyncGenerator[bytes, None]:
        for name in node_logs.file_names(service):
            found = await asyncio.to_thread(self._files.find, self._root, name)
            if isinstance(found, SystemLogFile):
                try:
                    async with aclosing(self._files.read(found)) as pieces:
                        async for piece in pieces:
                            yield piece
                except OSError as error:
                    yield f"\nerror getting log for {service}: {error}\n".encode()
                return
        yield f"\nlog not found for {service}\n".encode()
