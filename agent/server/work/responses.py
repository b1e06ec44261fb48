"""Responses and errors that all endpoints share."""

from __future__ import annotations

import orjson
from aiohttp import web

from agent.common.model.errors import CriError
from agent.common.model.pods import Pod
from agent.common.ports import PodView
from nodelib.errors import NodewrightError
from nodelib.json_values import Json

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
