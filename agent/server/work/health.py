"""/healthz: whether the pod loop runs and the node's Lease is renewed."""

from __future__ import annotations

from aiohttp import web

from agent.server.work.dependencies import ServerDeps
from agent.server.work.responses import text


class Health:
    """The checks of upstream's healthz with its texts (ping, log, syncloop), and the heartbeat as `lease`."""

    def __init__(self, deps: ServerDeps) -> None:
        self._deps = deps

    async def all(self, request: web.Request) -> web.Response:
        excluded = set(request.query.getall("exclude", []))
        checks = [
            ("ping", ""),
            ("log", ""),
            ("syncloop", self._deps.health()),
            ("lease", self._deps.heartbeat()),
        ]
        lines = []
        failed = False
        for name, problem in checks:
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok\n")
            elif problem:
                failed = True
                lines.append(f"[-]{name} failed: {problem}\n")
            else:
                lines.append(f"[+]{name} ok\n")
        if failed:
            return text(500, "".join(lines) + "healthz check failed\n")
        if "verbose" in request.query:
            return text(200, "".join(lines) + "healthz check passed\n")
        return text(200, "ok")

    async def ping(self, request: web.Request) -> web.Response:
        return text(200, "ok")

    async def syncloop(self, request: web.Request) -> web.Response:
        return _check(self._deps.health())

    async def lease(self, request: web.Request) -> web.Response:
        return _check(self._deps.heartbeat())


def _check(problem: str) -> web.Response:
    return text(500, f"internal server error: {problem}\n") if problem else text(200, "ok")
