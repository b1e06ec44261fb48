"""Answers of endpoints that are switched off, or that this kubelet does not have."""

from __future__ import annotations

from aiohttp import web

from agent.server.work.responses import text


async def debugging_disabled(request: web.Request) -> web.Response:
    return text(405, "Debug endpoints are disabled.\n")


async def system_logs_disabled(request: web.Request) -> web.Response:
    return text(405, "logs endpoint is disabled.\n")


async def no_pprof(request: web.Request) -> web.Response:
    return text(404, "this kubelet is no Go program: it has no pprof profiles. See /metrics for process figures.\n")
