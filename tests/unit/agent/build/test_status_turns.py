"""Statuses of pods are sent a few at a time on a node that is built, and namespaces take turns."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
from aiohttp import web

from agent.build import base as base_module
from agent.build.base import Connections, connections
from agent.build.gates import node_gates
from agent.build.pods import pod_deps
from agent.common.model.pods import Pod
from agent.pods.edge.api_pods import PodsApi
from agent.pods.work.status_manager import StatusManager
from nodelib.clock import SystemClock
from nodelib.kube.access import ClusterAccess
from tests.builders.metrics import metrics
from tests.fakes.apiserver import FakeApiServer
from tests.waiting import until


class HeldApi(FakeApiServer):
    """Each status is answered once `go` is set. `asked`: the namespaces of those that came."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.go = asyncio.Event()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path.split("/")[4])
        await self.go.wait()
        name = request.path.split("/")[6]
        meta = {"name": name, "namespace": self.asked[-1], "uid": name, "resourceVersion": "2"}
        return web.json_response({"kind": "Pod", "apiVersion": "v1", "metadata": meta, "status": {"phase": "Failed"}})


def made(namespace: str, number: int) -> Pod:
    meta: dict[str, Any] = {"uid": f"{namespace}{number}", "name": f"p{number}", "namespace": namespace}
    return Pod({"metadata": {**meta, "resourceVersion": "1"}, "spec": {"containers": []}})


def connected(url: str, monkeypatch: pytest.MonkeyPatch) -> Connections:
    monkeypatch.setattr(base_module, "Cri", MagicMock())
    settings = MagicMock(standalone=False)
    settings.api.limit, settings.api.streaming_lists = None, True
    return connections(settings, SystemClock(), ClusterAccess(server=url), metrics(), None)


async def test_thousands_of_a_namespace_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """All were under way at once: beside 6,000 pods that the node rejected, another namespace's started after 60 s."""
    async with HeldApi() as api:
        made_of = connected(api.url, monkeypatch)
        manager = StatusManager(PodsApi(made_of.statuses), SystemClock(), metrics())
        for number in range(200):
            manager.set(made("evil", number), {"phase": "Failed"})
        assert await until(lambda: len(api.asked) == 24)
        manager.set(made("shop", 0), {"phase": "Running"})
        assert await until(lambda: "shop" in api.asked)
        assert len(api.asked) == 25
        api.go.set()
        await asyncio.wait_for(manager.flush("evil199"), 30)
        await manager.close()
        for one in (made_of.api, made_of.named, made_of.statuses, made_of.heartbeat):
            await one.close()


def test_pods_are_written_over_that_connection() -> None:
    base = cast(Any, MagicMock())
    base.settings.images.providers_config = base.settings.images.providers_dir = ""
    one = cast(Any, MagicMock())
    built = pod_deps(base, one, one, one, one, one, one, node_gates(2), lambda pod: None)
    assert cast(Any, built.status.api)._client is base.connections.statuses
