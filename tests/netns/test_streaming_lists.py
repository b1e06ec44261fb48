"""Lists as initial events of watches, from a real API server that does them, and from one whose gate is off."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path

import pytest

from nodelib.json_values import Json
from nodelib.kube.answers import Allowance
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector
from nodelib.tasks import cancel_and_wait
from tests.netns import api_server
from tests.waiting import until

pytestmark = pytest.mark.netns

# What the daemons, the page and the commands watch; events are not in the API server's watch cache.
WATCHED: list[tuple[str, dict[str, str]]] = [
    ("/api/v1/pods", {"fieldSelector": "spec.nodeName=n1"}),
    ("/api/v1/pods", {}),
    ("/api/v1/namespaces", {}),
    ("/api/v1/nodes", {"fieldSelector": "metadata.name=n1"}),
    (
        "/api/v1/services",
        {"labelSelector": "!service.kubernetes.io/service-proxy-name", "fieldSelector": "spec.clusterIP!=None"},
    ),
    ("/api/v1/services", {"fieldSelector": "spec.type=LoadBalancer"}),
    ("/api/v1/events", {}),
    ("/apis/discovery.k8s.io/v1/endpointslices", {"labelSelector": "!service.kubernetes.io/headless"}),
    ("/apis/networking.k8s.io/v1/networkpolicies", {}),
    ("/apis/networking.k8s.io/v1/servicecidrs", {}),
    ("/apis/storage.k8s.io/v1/csidrivers", {}),
    ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {}),
    ("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"fieldSelector": "metadata.name=x.y"}),
]


class Counted(KubeClient):
    """Counts lists in pages, watches that ask for initial events, and other watches."""

    counts: Counter[str]

    async def get(self, path: str, params: Mapping[str, str] | None = None) -> Json:
        self.counts["pages"] += 1
        return await super().get(path, params)

    async def stream(
        self,
        path: str,
        params: Mapping[str, str],
        *,
        on_open: Callable[[], None] | None = None,
        allowance: Allowance | None = None,
    ) -> AsyncGenerator[Json, None]:
        self.counts["streams" if "sendInitialEvents" in params else "watches"] += 1
        async for event in super().stream(path, params, on_open=on_open, allowance=allowance):
            yield event


_STREAMED, _PAGED = {"streams": 1}, {"streams": 1, "pages": 1, "watches": 1}
_OLDER = pytest.mark.soak  # its build takes minutes


@pytest.mark.parametrize(
    ("release", "gates", "counted"),
    [
        pytest.param("", "", _STREAMED, id="it does them"),
        pytest.param("", "WatchList=false", _PAGED, id="its gate is off"),
        pytest.param("1.36", "", _STREAMED, id="1.36 does them", marks=_OLDER),
        pytest.param("1.36", "WatchList=false", _PAGED, id="1.36, its gate is off", marks=_OLDER),
    ],
)
def test_everything_that_is_watched(tmp_path: Path, release: str, gates: str, counted: dict[str, int]) -> None:
    with api_server.running(tmp_path, [], gates=gates, release=release) as api:

        async def watch(path: str, params: dict[str, str]) -> None:
            client = Counted(api.access("admin"), user_agent="test")
            client.counts = Counter()
            reflector = Reflector(client, path, name=path, params=params)
            task = asyncio.create_task(reflector.run())
            await asyncio.wait_for(reflector.synced.wait(), 20)
            await until(lambda: client.counts.total() >= sum(counted.values()))
            assert client.counts == counted, f"{path}: {reflector.last_error}"
            if path == "/api/v1/namespaces":
                assert ("", "default") in reflector.store
                await client.post(path, {"metadata": {"name": "new"}})
                await until(lambda: ("", "new") in reflector.store)
                assert client.counts == counted, "the same connection tells what comes later"
            await cancel_and_wait(task)
            await client.close()

        async def all_of_them() -> None:
            async with KubeClient(api.access("admin"), user_agent="test") as client:
                body = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}, "reason": "Test"}
                await client.post("/api/v1/namespaces/default/events", body)
            await asyncio.gather(*(watch(path, params) for path, params in WATCHED))

        api_server.run_inside(api.netns, all_of_them)
