"""/statusz, /flagz and /configz: the process, its command line and its configuration."""

from __future__ import annotations

import platform

from aiohttp import web

from agent.server.plan import zpages
from agent.server.work.dependencies import ServerDeps
from agent.server.work.responses import Refused, json, text
from nodelib.clock import Clock
from nodelib.json_values import Json
from nodelib.version import KUBERNETES_VERSION

_DEPRECATED = '299 - "This version of the {} endpoint is deprecated. Please use a newer version."'


class ZPages:
    """Created when the server starts: `startTime` is that moment, shortly after the process began."""

    def __init__(self, deps: ServerDeps, clock: Clock) -> None:
        self._deps, self._clock = deps, clock
        self._started = clock.now()

    async def statusz(self, request: web.Request) -> web.Response:
        form = _form(request, "Statusz")
        found = {resource.canonical for resource in request.app.router.resources()}
        paths = {"/" + path.split("/")[1] for path in found}
        language = f"Python {platform.python_version()}"
        answer = zpages.statusz(
            form,
            started=self._started,
            now=self._clock.now(),
            version=KUBERNETES_VERSION.removeprefix("v"),
            language=language,
            paths=paths,
        )
        return _answer(answer, form, "statusz")

    async def flagz(self, request: web.Request) -> web.Response:
        form = _form(request, "Flagz")
        return _answer(zpages.flagz(form, self._deps.node.flags), form, "flagz")

    async def configz(self, request: web.Request) -> web.Response:
        return json({"kubeletconfig": dict(self._deps.node.configz)})


def _form(request: web.Request, kind: str) -> zpages.Form:
    form = zpages.form_of(request.headers.get("Accept", ""), kind)
    if form is None:
        wanted = f"application/json;as={kind};g=config.k8s.io;v=v1beta1"
        raise Refused(406, f"only text/plain and {wanted} are served here\n")
    return form


def _answer(answer: str | Json, form: zpages.Form, name: str) -> web.Response:
    response = text(200, answer) if isinstance(answer, str) else json(answer)
    if form.version == "v1alpha1":
        response.headers["Warning"] = _DEPRECATED.format(name)
    return response
