"""What users write into a pod must fit into the runtime's list of all pods: 16 MiB, in both containerd and the agent.

Upstream hands over every annotation: seventy pods with a quarter of a mebibyte each, and a node sees no pod any more.
"""

from __future__ import annotations

from typing import Any

import pytest
from cri_api.v1 import api_pb2

from agent.common.model import labels
from agent.common.model.pods import Pod

_PODS = 250
_LIST = 16 << 20  # bytes

pb: Any = api_pb2


def _pod(**more: Any) -> Pod:
    meta = {"uid": "u", "name": "p", "namespace": "n", **more}
    pre_stop = {"exec": {"command": ["x" * 500_000]}}
    ports = [{"containerPort": number, "name": f"port{number}"} for number in range(1, 5000)]
    spec = {"containers": [{"name": "c", "image": "i", "lifecycle": {"preStop": pre_stop}, "ports": ports}]}
    return Pod({"metadata": meta, "spec": spec})


_LARGE = {f"example.com/{number}": "y" * 8000 for number in range(32)}


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(_LARGE, id="a quarter of a mebibyte"),
        pytest.param({f"a{number}": "木" * 1000 for number in range(80)}, id="letters of three bytes"),
        pytest.param({"last-applied": "y" * 200_000}, id="one"),
    ],
)
def test_250_pods_fit_into_a_list(given: dict[str, str]) -> None:
    pod = _pod(annotations={**given, "kubernetes.io/config.source": "api", "kubernetes.io/ingress-bandwidth": "1M"})
    kept = labels.sandbox_annotations(pod)
    assert kept["kubernetes.io/config.source"] == "api" and kept["kubernetes.io/ingress-bandwidth"] == "1M"
    assert pb.PodSandbox(annotations=kept).ByteSize() * _PODS < _LIST


def test_250_pods_with_many_labels_fit_into_a_list() -> None:
    pod = _pod(labels={f"example.com/{number}": "y" * 63 for number in range(10_000)})
    kept = labels.sandbox_labels(pod)
    assert kept[labels.POD_UID] == "u" and kept[labels.POD_NAME] == "p"
    assert pb.PodSandbox(labels=kept).ByteSize() * _PODS < _LIST


def test_250_pods_with_ten_containers_fit_into_a_list() -> None:
    pod = _pod()
    container = pod.spec["containers"][0]
    kept = labels.container_annotations(pod, container, 0)
    assert kept[labels.HASH] and kept[labels.RESTART_COUNT] == "0"
    assert pb.Container(annotations=kept).ByteSize() * _PODS * 10 < _LIST


def test_usual_pods_keep_everything() -> None:
    given = {"a": "b", "last-applied": "x" * 10_000}
    meta = {"uid": "u", "name": "p", "namespace": "n", "annotations": given, "labels": {"k": "v"}}
    pod = Pod({"metadata": meta, "spec": {}})
    assert labels.sandbox_annotations(pod) == {**given, labels.CONFIG_SOURCE: "api"}
    assert labels.sandbox_labels(pod)["k"] == "v"
    pre_stop = {"exec": {"command": ["sh", "-c", "sleep 1"]}}
    kept = labels.container_annotations(pod, {"name": "c", "lifecycle": {"preStop": pre_stop}}, 0)
    assert labels.PRE_STOP in kept


def test_where_a_pod_was_read_is_not_for_its_owner_to_say() -> None:
    """Of a pod that is in no list its annotation says whose list to wait for before it is ended."""
    assert labels.sandbox_annotations(_pod(annotations={labels.CONFIG_SOURCE: "x"})) == {labels.CONFIG_SOURCE: "api"}
