"""What `why` asks the API server: a kind that is refused, and one that comes late, are not taken for empty."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from cli.why.logs import LogWanted
from cli.why.sources import Sources

_PODS, _CLAIMS, _JOBS = "/api/v1/pods", "/api/v1/persistentvolumeclaims", "/apis/batch/v1/jobs"

_KINDS = (
    "Pod Deployment ReplicaSet StatefulSet DaemonSet Job CronJob PersistentVolumeClaim Service EndpointSlice Node Event"
    " Lease"
)
_LISTS = {f"{kind.lower()}s": f"{kind}List" for kind in _KINDS.split()}
_LISTS |= {f"{kind.lower()}es": f"{kind}List" for kind in ("Ingress", "IngressClass", "StorageClass")}


class Slow:
    """An API server whose first answer about claims never comes, and which refuses to list Jobs."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.pods = 200

    async def answer(self, request: web.Request) -> web.Response:
        self.calls[request.path] = self.calls.get(request.path, 0) + 1
        if request.path == _CLAIMS and self.calls[_CLAIMS] == 1:
            await asyncio.sleep(3600)
        refused = request.path == _JOBS or (request.path == _PODS and self.pods != 200)
        if refused:
            body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "message": "no"}
            return web.json_response({**body, "code": 403}, status=403)
        if request.path.endswith("/log"):
            return web.Response(text=f"{dict(request.query)}")
        items = (
            [{"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}}]
            if request.path in (_PODS, _CLAIMS)
            else []
        )
        group, _, plural = request.path.removeprefix("/api/").removeprefix("/apis/").rpartition("/")
        group = group.partition("/namespaces/")[0]
        meta = {"resourceVersion": "1"}
        return web.json_response({"kind": _LISTS[plural], "apiVersion": group, "metadata": meta, "items": items})


@pytest.fixture
async def slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Slow, Sources]]:
    monkeypatch.setattr("cli.why.sources._SECONDS", 0.5)
    server, app = Slow(), web.Application()
    app.router.add_get("/{tail:.*}", server.answer)
    async with TestServer(app) as running:
        clusters = [{"name": "a", "cluster": {"server": str(running.make_url("")).rstrip("/")}}]
        contexts = [{"name": "a", "context": {"cluster": "a", "user": "a"}}]
        config = {"clusters": clusters, "contexts": contexts, "users": [{"name": "a", "user": {}}]}
        path = tmp_path / "config"
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "a", **config}))
        async with Sources(None, str(path)) as sources:
            yield server, sources


async def test_a_kind_that_came_late_is_asked_for_again_and_one_that_is_refused_is_named(
    slow: tuple[Slow, Sources],
) -> None:
    server, sources = slow
    answers = await sources.ask()
    assert answers.api_answers and answers.api == ""
    assert [one["metadata"]["name"] for one in answers.facts.all("pvc")] == ["x"], "asked for again"
    assert set(answers.unlisted) == {"job"} and "job" not in answers.facts.lists
    assert (server.calls[_CLAIMS], server.calls[_JOBS]) == (2, 1)


async def test_without_pods_the_api_server_counts_as_silent(slow: tuple[Slow, Sources]) -> None:
    server, sources = slow
    server.pods = 403
    answers = await sources.ask()
    assert not answers.api_answers and answers.facts.lists == {} and "no" in answers.api
    assert server.calls[_CLAIMS] == 1, "nothing more is asked of it"


async def test_a_log_is_asked_for_by_container_and_attempt(slow: tuple[Slow, Sources]) -> None:
    _, sources = slow
    text = await sources.log(LogWanted("shop", "web", "app", True))
    assert "'container': 'app'" in text and "'previous': 'true'" in text and "'tailLines': '10'" in text
