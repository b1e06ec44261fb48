"""What `node remove` says while a node's pods leave, against an API server in memory."""

from __future__ import annotations

from controlplane.cluster.work.drain import drain
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer

OWNED = [{"kind": "ReplicaSet", "name": "a", "controller": True}]
POD: Json = {
    "metadata": {"name": "web", "namespace": "x", "uid": "u", "ownerReferences": OWNED},
    "spec": {"nodeName": "n2"},
    "status": {"phase": "Running"},
}


class Meanwhile(SystemClock):
    """Time passes at once, and the evicted pod ends in it."""

    def __init__(self, api: FakeApiServer) -> None:
        self._api = api

    async def sleep(self, seconds: float) -> None:
        self._api.objects.pop("/api/v1/pods/web", None)


async def test_the_last_words_are_not_those_of_a_pod_that_is_still_there() -> None:
    said: list[str] = []
    async with FakeApiServer() as api, KubeClient(ClusterAccess(api.url), user_agent="test") as client:
        api.objects["/api/v1/pods/web"] = POD
        await drain(client, Meanwhile(api), "n2", 9, said.append, force=False)
        await drain(client, Meanwhile(api), "n2", 9, said.append, force=False)
        assert any(path.endswith("/namespaces/x/pods/web/eviction") for _, path in api.requests)
    assert said == ["1 pods to go", "1 moved away", "none had to go"]
