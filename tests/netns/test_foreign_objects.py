"""Names that lead out of a pod's namespace, with a real API server, which accepts them, and the rights of a node."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from agent.common.model.pods import Pod
from agent.volumes.model.sources import SECRET, ObjectRef
from agent.volumes.work.pod_objects import PodObjects
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from tests.builders.pods import container
from tests.netns import api_server
from tests.netns.api_server import ApiServer, run_inside

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
]

NODE = "node"
SECRETS = ("../../victim/secrets/db", "%2e%2e/%2e%2e/victim/secrets/db", "x/../../../victim/secrets/db")
CLAIM = "../../victim/persistentvolumeclaims/data"


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server.running(tmp_path_factory.mktemp("api"), [NODE]) as one:
        yield one


def _pod(name: str, volumes: list[Json]) -> Json:
    spec: Json = {"nodeName": NODE, "automountServiceAccountToken": False, "volumes": volumes}
    return {"metadata": {"name": name}, "spec": {**spec, "containers": [{**container("c"), "image": "x"}]}}


def _volumes(secrets: tuple[str, ...], claim: str) -> list[Json]:
    listed: list[Json] = [{"name": f"v{one}", "secret": {"secretName": name}} for one, name in enumerate(secrets)]
    return [*listed, {"name": "claim", "persistentVolumeClaim": {"claimName": claim}}]


def test_a_pod_gets_no_object_of_another_namespace(api: ApiServer) -> None:
    """A node may read what any of its pods uses: a pod that names it by a path must not get it from the agent."""

    async def work() -> None:
        async with (
            KubeClient(api.access("admin"), user_agent="test") as admin,
            KubeClient(api.access(NODE), user_agent="test") as node,
        ):
            for namespace in ("victim", "attacker"):
                await admin.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
                await admin.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
            db: Json = {"metadata": {"name": "db"}, "stringData": {"password": "x"}}
            await admin.post("/api/v1/namespaces/victim/secrets", db)
            asked: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            data: Json = {"metadata": {"name": "data"}, "spec": asked}
            await admin.post("/api/v1/namespaces/victim/persistentvolumeclaims", data)
            await admin.post("/api/v1/namespaces/victim/pods", _pod("web", _volumes(("db",), "data")))
            made = Pod(await admin.post("/api/v1/namespaces/attacker/pods", _pod("web", _volumes(SECRETS, CLAIM))))
            own = Pod(await admin.get("/api/v1/namespaces/victim/pods/web"))
            objects = PodObjects(node, SystemClock(), lambda uid: None)
            try:
                found = await objects.object(own, ObjectRef(SECRET, "db"))
                assert found is not None and found["data"] and await objects.claim(own, "data") is not None
                for name in SECRETS:
                    assert await objects.object(made, ObjectRef(SECRET, name)) is None
                assert await objects.claim(made, CLAIM) is None
            finally:
                await objects.close()

    run_inside(api.netns, work)
