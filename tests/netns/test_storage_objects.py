"""What `up --storage` applies, against a real API server: kinds of snapshots, the class, rights of the helpers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from controlplane.cluster.plan import snapshot_kinds, storage
from controlplane.cluster.plan.certificates import STORAGE_USER
from controlplane.cluster.work.workloads import apply
from csi.model import DRIVER
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient
from tests.netns import api_server
from tests.netns.api_server import ApiServer, run_inside
from tests.waiting import until

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]

_GROUP = "snapshot.storage.k8s.io"
_SNAPSHOTS = f"/apis/{_GROUP}/v1/namespaces/default/volumesnapshots"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server.running(tmp_path_factory.mktemp("storage"), []) as made:
        yield made


def snapshot(**source: str) -> Json:
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "VolumeSnapshot",
        "metadata": {"generateName": "s-"},
        "spec": {"source": source},
    }


async def served(api: KubeClient) -> bool:
    """Whether the new kinds are there: a server takes them up after a moment."""
    try:
        return bool(await api.get(_SNAPSHOTS))
    except ApiError as error:
        if error.code != 404:
            raise
        return False


def test_everything_is_accepted_and_does_what_it_is_for(server: ApiServer) -> None:
    async def run() -> None:
        async with KubeClient(server.access("admin"), user_agent="test") as api:
            objects = [*storage.rights(), *storage.objects(), *snapshot_kinds.kinds(), storage.snapshot_class()]
            await apply(api, objects, SystemClock())
            await apply(api, objects, SystemClock())
            await until(lambda: served(api), 60)
            made = await api.post(_SNAPSHOTS, snapshot(persistentVolumeClaimName="data"))
            path = f"{_SNAPSHOTS}/{made['metadata']['name']}"
            await api.patch(f"{path}/status", {"status": {"readyToUse": True, "restoreSize": "1Gi"}}, kind="merge")
            shown = await api.get(path)
            assert shown["status"]["restoreSize"] == "1Gi" and shown["spec"]["source"]
            for wrong in ({}, {"persistentVolumeClaimName": "a", "volumeSnapshotContentName": "b"}):
                with pytest.raises(ApiError, match="either the claim"):
                    await api.post(_SNAPSHOTS, snapshot(**wrong))
            with pytest.raises(ApiError, match="cannot be changed"):
                await api.patch(path, {"spec": {"source": {"persistentVolumeClaimName": "other"}}}, kind="merge")
            body = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": "c"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }
            claim = await api.post("/api/v1/namespaces/default/persistentvolumeclaims", body)
            assert claim["spec"]["storageClassName"] == storage.CLASS

    run_inside(server.netns, run)


_MANAGED_BY = "snapshot.storage.kubernetes.io/managed-by"
_ID = f"snap-{'0f' * 20}"


async def content(api: KubeClient, handle: str, labels: dict[str, str] | None = None, driver: str = DRIVER) -> Json:
    """The labels of a new VolumeSnapshotContent for a snapshot that exists already."""
    body = {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "VolumeSnapshotContent",
        "metadata": {"generateName": "c-", **({"labels": labels} if labels else {})},
        "spec": {"driver": driver, "deletionPolicy": "Retain", "source": {"snapshotHandle": handle}},
    }
    made = await api.post(f"/apis/{_GROUP}/v1/volumesnapshotcontents", body)
    return dict(made["metadata"].get("labels") or {})


def test_a_snapshot_that_exists_already_is_given_to_the_node_that_its_handle_names(server: ApiServer) -> None:
    async def run() -> None:
        async with KubeClient(server.access("admin"), user_agent="test") as api:
            await apply(api, [*storage.objects(), *snapshot_kinds.kinds()], SystemClock())
            await until(lambda: served(api), 60)

            async def labelled() -> bool:
                try:  # a policy, and what it needs to know of a kind, come after a moment, too
                    return await content(api, f"{_ID}@node2") == {_MANAGED_BY: "node2"}
                except ApiError as error:
                    if "There can be a delay" not in str(error):
                        raise
                    return False

            await until(labelled, 60)
            assert await content(api, f"{_ID}@a.b-c", {"x": "y"}) == {"x": "y", _MANAGED_BY: "a.b-c"}
            assert await content(api, f"{_ID}@node2", {_MANAGED_BY: "node1"}) == {_MANAGED_BY: "node1"}
            for other in (_ID, f"{_ID}@", f"{_ID}@node2@node1", f"{_ID}@no de", f"{_ID}@{'n' * 64}"):
                assert await content(api, other) == {}, other
            assert await content(api, f"{_ID}@node2", driver="another.example.com") == {}

    run_inside(server.netns, run)


@pytest.mark.parametrize(
    ("verb", "group", "resource", "namespace", "allowed"),
    [
        ("create", "", "persistentvolumes", "", True),
        ("patch", "", "persistentvolumeclaims/status", "default", True),
        ("create", "storage.k8s.io", "csistoragecapacities", "kube-system", True),
        ("create", "storage.k8s.io", "csistoragecapacities", "default", False),
        ("get", "", "secrets", "default", False),
        ("create", "", "pods", "default", False),
        ("update", "", "nodes", "", False),
    ],
)
def test_rights(server: ApiServer, verb: str, group: str, resource: str, namespace: str, allowed: bool) -> None:
    async def run() -> None:
        async with KubeClient(server.access("admin"), user_agent="test") as api:
            await apply(api, storage.rights(), SystemClock())
            name, _, part = resource.partition("/")
            asked = {"verb": verb, "group": group, "resource": name, "subresource": part, "namespace": namespace}
            spec = {"user": STORAGE_USER, "resourceAttributes": asked}
            answer = await api.post(_REVIEWS, {"spec": spec})
            assert answer["status"]["allowed"] is allowed

    run_inside(server.netns, run)
