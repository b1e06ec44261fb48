"""Workloads without pods, which no pod tells of."""

from __future__ import annotations

from typing import Any

import pytest

from controlplane.cluster.plan.podless import Podless, podless
from nodelib.json_values import Json


def workload(spec: Json, status: Json, **meta: Any) -> Json:
    meta = {"namespace": "shop", "name": "web", "generation": 2, **meta}
    return {"metadata": meta, "spec": spec, "status": {"observedGeneration": 2, **status}}


REFUSED = {"conditions": [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]}
ENDED = {"startTime": "2026-11-29T10:00:00Z", "conditions": [{"type": "Failed", "status": "True"}]}


@pytest.mark.parametrize(
    ("kind", "obj", "reason"),
    [
        ("deployment", workload({"replicas": 3}, {"replicas": 2, **REFUSED}), "has 2 of 3 pods: exceeded quota"),
        ("deployment", workload({"replicas": 3}, {}), "has 0 of 3 pods"),
        ("deployment", workload({}, {}), "has 0 of 1 pods"),
        ("deployment", workload({"replicas": 3}, {"replicas": 3}), ""),
        ("deployment", workload({"replicas": 0}, {}), ""),
        ("deployment", workload({"replicas": 3, "paused": True}, {}), ""),
        ("deployment", workload({"replicas": 3}, {"observedGeneration": 1}), ""),
        ("deployment", workload({"replicas": 3}, {}, deletionTimestamp="2026-11-29T10:00:00Z"), ""),
        ("deployment", workload({"replicas": "3"}, {"conditions": 7}), "has 0 of 1 pods"),
        ("statefulset", workload({"replicas": 2}, {}), "has 0 of 2 pods"),
        ("statefulset", workload({"replicas": 2}, {"replicas": 1}), ""),
        ("daemonset", workload({}, {"desiredNumberScheduled": 2}), "has 0 of 2 pods"),
        ("daemonset", workload({}, {"desiredNumberScheduled": 2, "currentNumberScheduled": 1}), ""),
        ("daemonset", workload({}, {}), ""),
        ("job", workload({}, {"startTime": "2026-11-29T10:00:00Z"}), "has no pods yet"),
        ("job", workload({}, {"startTime": "2026-11-29T10:00:00Z", "active": 1}), ""),
        ("job", workload({"suspend": True}, {"startTime": "2026-11-29T10:00:00Z"}), ""),
        ("job", workload({}, ENDED), ""),
        ("cronjob", workload({}, {}), ""),
    ],
)
def test_a_workload_without_pods_is_told_with_its_reason(kind: str, obj: Json, reason: str) -> None:
    assert podless({kind: [obj]}) == ((Podless(kind, "shop", "web", reason),) if reason else ())
