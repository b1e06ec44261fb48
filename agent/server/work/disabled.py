"""Answers of endpoints that are switched off, or that this kubelet does not have."""

from __future__ import annotations

from aiohttp import web

from agent.server.work.responses import text

_NO_PPROF = "this kubelet is not a Go program and has no pprof profiles; /metrics has the metrics of its process\n"


async def debugging_disabled(request: web.Request) -> web.Response:
    return text(405, "Debug endpoints are disabled.\n")


async def system_logs_disabled(request: web.Request) -> web.Response:
    return text(405, "logs endpoint is disabled.\n")


async def flags_disabled(request: web.Request) -> web.Response:
    return text(405, "flags endpoint is disabled.\n")


async def no_pprof(request: web.Request) -> web.Response:
    return text(404, _NO_PPROF)
