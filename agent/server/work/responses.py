"""Responses and errors that all endpoints share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import orjson
from aiohttp import web

from agent.common.model.errors import CriError
from agent.common.model.pods import Pod
from agent.common.ports import PodView
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

_PART = 64 * 1024  # bytes of a long answer that are sent at once
_CRI_STATUS = {"NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429}


class Refused(Exception):
    """An endpoint cannot do what it was asked to do. Carries status and text of the response."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def text(status: int, body: str | bytes) -> web.Response:
    data = body.encode() if isinstance(body, str) else body
    return web.Response(status=status, body=data, content_type="text/plain", charset="utf-8")


def json(body: Json) -> web.Response:
    return web.Response(body=orjson.dumps(body), content_type="application/json")


async def pod_list(request: web.Request, items: Iterable[Json]) -> web.StreamResponse:
    """A PodList. A long one is sent while it is put together: a node may have a hundred pods of more than a megabyte,
    and clients that read slowly. Others have their turn between any two parts."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    part, separator = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[', b""
    for item in items:
        part += separator + orjson.dumps(item)
        separator = b","
        if len(part) >= _PART:
            if not response.prepared:
                await response.prepare(request)
            await response.write(part)
            part = b""
            await asyncio.sleep(0)
    if not response.prepared:
        return web.Response(body=part + b"]}", content_type="application/json")
    await response.write(part + b"]}")
    await response.write_eof()
    return response


def find_pod(pods: PodView, request: web.Request, message: str) -> Pod:
    """The pod that the path names. Raises Refused (404) with `message`."""
    pod = pods.pod(request.match_info["namespace"], request.match_info["pod"])
    if pod is None:
        raise Refused(404, message)
    return pod


def of_error(error: NodewrightError) -> Refused:
    """The response to an error of the runtime, as upstream's streaming.WriteError."""
    if isinstance(error, CriError):
        return Refused(_CRI_STATUS.get(error.code, 500), error.message)
    return Refused(500, str(error))
