"""Pods with very many mounts: the node has 100,000 for all of them."""

from __future__ import annotations

import pytest

from agent.common.model.pods import Pod
from agent.volumes.plan.own_mounts import own_mounts
from agent.volumes.work.mount_places import MOST_OF_NAMESPACE, MountPlaces
from nodelib.errors import Invalid, Temporary
from nodelib.json_values import Json
from tests.builders.pods import container, pod


def _with_sub_paths(count: int, uid: str = "u", namespace: str = "many") -> Pod:
    mounts = [{"name": "v", "mountPath": f"/m/{number}", "subPath": f"d{number}"} for number in range(count)]
    meta = {"uid": uid, "namespace": namespace}
    return pod(container(volumeMounts=mounts), meta=meta, volumes=[{"name": "v", "emptyDir": {}}])


@pytest.mark.parametrize(
    ("volume", "mounts"),
    [
        ({"emptyDir": {}}, 0),
        ({"emptyDir": {"medium": "Memory"}}, 1),
        ({"emptyDir": {"medium": "HugePages"}}, 1),
        ({"configMap": {"name": "a"}}, 0),
        ({"secret": {"secretName": "a"}}, 1),
        ({"projected": {"sources": []}}, 1),
        ({"downwardAPI": {}}, 1),
        ({"persistentVolumeClaim": {"claimName": "a"}}, 1),
        ({"csi": {"driver": "a"}}, 1),
        ({"hostPath": {"path": "/a"}}, 0),
    ],
)
def test_volumes_that_are_mounts(volume: Json, mounts: int) -> None:
    assert own_mounts(pod(volumes=[{"name": "v", **volume}])) == mounts


def test_each_sub_path_is_a_mount() -> None:
    by_name = {"name": "v", "mountPath": "/a", "subPathExpr": "$(A)"}
    both = [container(volumeMounts=[by_name, {"name": "v", "mountPath": "/b"}])]
    assert own_mounts(pod(*both, initContainers=[container("first", volumeMounts=[by_name])])) == 2
    assert own_mounts(_with_sub_paths(1000)) == 1000
    with pytest.raises(Invalid, match="1001 mounts, more than 1000"):
        own_mounts(_with_sub_paths(1001))


def test_the_pods_of_a_namespace_leave_mounts_to_others() -> None:
    """Four pods of 24,000 sub paths, 1.2 MB each, left none to the node: no pod of anybody started any more."""
    places = MountPlaces()
    for number in range(MOST_OF_NAMESPACE // 1000):
        for _ in range(2):  # each start of a container mounts again
            places.take(_with_sub_paths(1000, f"u{number}"))
    with pytest.raises(Temporary, match="have 5000 mounts on this node already"):
        places.take(_with_sub_paths(1, "late"))
    places.take(_with_sub_paths(0, "none"))
    places.take(_with_sub_paths(1000, "other", "other"))
    places.leave("u0")
    places.leave("unknown")
    places.take(_with_sub_paths(1, "late"))
