"""Labels and taints: what a kubelet registers with, and what is mended in a Node."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from controlplane.cluster.plan.node_marks import OURS, marks_patch, registration_flags
from controlplane.config.model import Member, Taint

GPU = Taint("gpu", "NoSchedule", "yes")
FOREIGN = {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}


def node(labels: dict[str, str], taints: list[dict[str, str]], given: str = "") -> dict[str, Any]:
    metadata = {"name": "n", "resourceVersion": "7", "labels": labels, "annotations": {OURS: given} if given else {}}
    return {"metadata": metadata, "spec": {"taints": taints}}


def patched(there: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """The Node after a merge patch, as the API server makes it."""
    made = copy.deepcopy(there)
    for part in ("labels", "annotations"):
        for key, value in patch.get("metadata", {}).get(part, {}).items():
            made["metadata"][part].pop(key, None) if value is None else made["metadata"][part].update({key: value})
    if "spec" in patch:
        made["spec"]["taints"] = patch["spec"]["taints"] or []
    return made


def test_a_kubelet_registers_with_its_taints_and_the_labels_that_it_may_set() -> None:
    member = Member(
        "n",
        labels={"a": "b", "node-role.kubernetes.io/worker": "", "node.kubernetes.io/x": "1"},
        taints=(GPU, Taint("s", "NoExecute")),
    )
    assert registration_flags(member) == (
        "--node-labels=a=b,node.kubernetes.io/x=1",
        "--register-with-taints=gpu=yes:NoSchedule,s=:NoExecute",
    )
    assert registration_flags(Member("n")) == ()


@pytest.mark.parametrize(
    ("there", "member", "labels", "taints"),
    [
        pytest.param(node({"x": "1"}, [FOREIGN]), Member("n"), {"x": "1"}, [FOREIGN], id="nothing of ours"),
        pytest.param(
            node({"x": "1"}, [FOREIGN]), Member("n", labels={"a": "b"}, taints=(GPU,)),
            {"x": "1", "a": "b"}, [FOREIGN, GPU.to_api()], id="added beside those of others",
        ),
        pytest.param(
            node({"a": "old", "b": "2", "x": "1"}, [GPU.to_api(), FOREIGN], '[["a", "b"], [["gpu", "NoSchedule"]]]'),
            Member("n", labels={"a": "new"}), {"a": "new", "x": "1"}, [FOREIGN], id="what is no longer asked for goes",
        ),
        pytest.param(
            node({}, [{"key": "gpu", "effect": "NoSchedule", "value": "no"}]), Member("n", taints=(GPU,)),
            {}, [GPU.to_api()], id="another value",
        ),
        pytest.param(
            node({"b": "2"}, [GPU.to_api()], "not JSON"), Member("n"), {"b": "2"}, [GPU.to_api()], id="foreign record",
        ),
    ],
)  # fmt: skip
def test_marks_are_mended_once(
    there: dict[str, Any], member: Member, labels: dict[str, str], taints: list[dict[str, str]]
) -> None:
    patch = marks_patch(there, member)
    made = patched(there, patch)
    assert (made["metadata"]["labels"], made["spec"]["taints"]) == (labels, taints)
    assert marks_patch(made, member) == {}
    assert ("resourceVersion" in patch.get("metadata", {})) == ("spec" in patch), "a list of others is not overwritten"
