"""Requests, limits, QoS class and OOM score: the cases of upstream's helpers_test, qos_test and policy_test."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from agent.common.plan.demand import (
    Qos,
    computed_qos,
    is_critical,
    is_node_critical,
    oom_score_adj,
    pod_limits,
    pod_requests,
    qos_class,
)
from nodelib.json_values import Json
from tests.builders.pods import container, pod

GIB = 1 << 30


def asks(name: str = "main", requests: Json | None = None, limits: Json | None = None, **fields: Any) -> Json:
    resources = {key: value for key, value in (("requests", requests), ("limits", limits)) if value}
    return container(name, resources=resources, **fields)


def sidecar(name: str, requests: Json) -> Json:
    return asks(name, requests, restartPolicy="Always")


@pytest.mark.parametrize(
    ("mains", "inits", "extra", "cpu"),
    [
        pytest.param([{"cpu": "1"}, {"cpu": "500m"}], [], {}, "1.5", id="sum of containers"),
        pytest.param([{"cpu": "1"}], [asks("i", {"cpu": "3"})], {}, "3", id="greatest init"),
        pytest.param([{"cpu": "1"}], [asks("i", {"cpu": "100m"})], {}, "1", id="small init"),
        pytest.param([{"cpu": "1"}], [sidecar("s", {"cpu": "1"})], {}, "2", id="sidecar counts for good"),
        pytest.param(
            [{"cpu": "1"}], [sidecar("s", {"cpu": "1"}), asks("i", {"cpu": "5"})], {}, "6", id="init after sidecar"
        ),
        pytest.param(
            [{"cpu": "1"}], [asks("i", {"cpu": "5"}), sidecar("s", {"cpu": "1"})], {}, "5", id="init before sidecar"
        ),
        pytest.param([{"cpu": "1"}], [], {"overhead": {"cpu": "250m"}}, "1.25", id="overhead"),
        pytest.param([{"cpu": "1"}], [], {"resources": {"requests": {"cpu": "4"}}}, "4", id="pod level"),
    ],
)
def test_pod_requests(mains: list[Json], inits: list[Json], extra: Json, cpu: str) -> None:
    containers = [asks(f"c{index}", requests) for index, requests in enumerate(mains)]
    assert pod_requests(pod(*containers, initContainers=inits, **extra))["cpu"] == Decimal(cpu)


def test_overhead_adds_only_to_limits_that_exist() -> None:
    found = pod_limits(pod(asks(limits={"cpu": "1"}), overhead={"cpu": "250m", "memory": "64Mi"}))
    assert found == {"cpu": Decimal("1.25")}


@pytest.mark.parametrize(
    ("containers", "extra", "expect"),
    [
        pytest.param([asks()], {}, Qos.BEST_EFFORT, id="nothing"),
        pytest.param([asks(requests={"nvidia.com/gpu": "1"})], {}, Qos.BEST_EFFORT, id="only a device"),
        pytest.param([asks(requests={"cpu": "0"})], {}, Qos.BEST_EFFORT, id="zero"),
        pytest.param([asks(requests={"cpu": "1"})], {}, Qos.BURSTABLE, id="request"),
        pytest.param([asks(limits={"cpu": "1", "memory": "1Gi"})], {}, Qos.BURSTABLE, id="limits without requests"),
        pytest.param(
            [asks(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "1", "memory": "1Gi"})],
            {},
            Qos.GUARANTEED,
            id="equal",
        ),
        pytest.param(
            [asks(requests={"cpu": "1000m", "memory": "1024Mi"}, limits={"cpu": "1", "memory": "1Gi"})],
            {},
            Qos.GUARANTEED,
            id="equal in other words",
        ),
        pytest.param([asks(requests={"cpu": "1"}, limits={"cpu": "1"})], {}, Qos.BURSTABLE, id="no memory"),
        pytest.param(
            [asks("a", {"cpu": "1", "memory": "1"}, {"cpu": "1", "memory": "1"}), asks("b")],
            {},
            Qos.BURSTABLE,
            id="mixed",
        ),
        pytest.param(
            [asks()], {"initContainers": [asks("i", {"cpu": "1"})]}, Qos.BURSTABLE, id="an init container counts"
        ),
        pytest.param(
            [asks(requests={"cpu": "1"})],
            {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}},
            Qos.GUARANTEED,
            id="pod level decides",
        ),
    ],
)
def test_qos(containers: list[Json], extra: Json, expect: Qos) -> None:
    assert computed_qos(pod(*containers, **extra)) is expect


def test_the_api_servers_class_is_believed() -> None:
    assert qos_class(pod(asks(), status={"qosClass": "Guaranteed"})) is Qos.GUARANTEED


def _burstable(memory: str) -> Json:
    return asks(requests={"memory": memory})


@pytest.mark.parametrize(
    ("containers", "extra", "expect"),
    [
        pytest.param([asks()], {}, 1000, id="best effort"),
        pytest.param(
            [asks(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "1", "memory": "1Gi"})],
            {},
            -997,
            id="guaranteed",
        ),
        pytest.param([_burstable("1Gi")], {}, 875, id="an eighth"),
        pytest.param([_burstable("8Gi")], {}, 3, id="all: still above guaranteed"),
        pytest.param([asks(requests={"cpu": "1"})], {}, 999, id="no memory: below best effort"),
        pytest.param(
            [asks()],
            {"priorityClassName": "system-node-critical", "priority": 2_000_001_000},
            -997,
            id="node critical",
        ),
        pytest.param(
            [asks()], {"priorityClassName": "system-node-critical", "priority": 5}, 1000, id="critical by name only"
        ),
        pytest.param([_burstable("1Gi")], {"resources": {"requests": {"memory": "2Gi"}}}, 750, id="pod level share"),
    ],
)
def test_oom_score(containers: list[Json], extra: Json, expect: int) -> None:
    found = pod(*containers, **extra)
    assert oom_score_adj(found, found.spec["containers"][0], 8 * GIB) == expect


def test_a_sidecar_dies_no_sooner_than_what_it_serves() -> None:
    helper = asks("side", {"memory": "8Mi"}, restartPolicy="Always")
    found = pod(_burstable("4Gi"), initContainers=[helper])
    assert oom_score_adj(found, helper, 8 * GIB) == 500


@pytest.mark.parametrize(
    ("found", "critical", "node"),
    [
        pytest.param(pod(source="file", priorityClassName="system-node-critical"), True, True, id="static"),
        pytest.param(pod(meta={"annotations": {"kubernetes.io/config.mirror": "x"}}), False, False, id="says mirror"),
        pytest.param(pod(meta={"annotations": {"kubernetes.io/config.source": "file"}}), False, False, id="says file"),
        pytest.param(pod(priority=2_000_000_000), True, False, id="cluster critical"),
        pytest.param(pod(priority=1_000_000_000), False, False, id="high"),
        pytest.param(pod(), False, False, id="plain"),
    ],
)
def test_critical(found: Any, critical: bool, node: bool) -> None:
    assert (is_critical(found), is_node_critical(found)) == (critical, node)
