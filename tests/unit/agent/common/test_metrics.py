"""What the agent's metrics compute themselves."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from agent.common.metric import Metric
from agent.common.metrics import Metrics, image_size_class
from tests.builders.metrics import metrics, series

MB, GB = 1 << 20, 1 << 30


def test_runtime_operations_are_counted_and_timed() -> None:
    measured = metrics()
    with measured.runtime_operation("run_podsandbox"):
        pass
    with pytest.raises(RuntimeError), measured.runtime_operation("run_podsandbox"):
        raise RuntimeError
    assert series(measured, "kubelet_runtime_operations_total") == {("run_podsandbox",): 2.0}
    assert series(measured, "kubelet_runtime_operations_errors_total") == {("run_podsandbox",): 1.0}
    assert series(measured, "kubelet_runtime_operations_duration_seconds_count") == {("run_podsandbox",): 2.0}


def test_the_interval_of_relists_begins_with_the_second() -> None:
    measured = metrics()
    measured.relisted(0.1, 1000.0)
    assert series(measured, "kubelet_pleg_relist_interval_seconds_count") == {(): 0.0}
    measured.relisted(0.1, 1010.0)
    assert series(measured, "kubelet_pleg_relist_duration_seconds_count") == {(): 2.0}
    assert series(measured, "kubelet_pleg_relist_interval_seconds_sum") == {(): 10.0}
    assert series(measured, "kubelet_pleg_last_seen_seconds") == {(): 1010.0}


@pytest.mark.parametrize(
    ("size", "label"),
    [
        (0, "N/A"),
        (1, "0-10MB"),
        (10 * MB, "0-10MB"),
        (20 * MB, "10MB-100MB"),
        (101 * MB, "100MB-500MB"),
        (501 * MB, "500MB-1GB"),
        (2 * GB, "1GB-5GB"),
        (6 * GB, "5GB-10GB"),
        (11 * GB, "10GB-20GB"),
        (21 * GB, "20GB-30GB"),
        (31 * GB, "30GB-40GB"),
        (41 * GB, "40GB-60GB"),
        (61 * GB, "60GB-100GB"),
        (101 * GB, "GT100GB"),
    ],
)
def test_image_sizes(size: int, label: str) -> None:
    assert image_size_class(size) == label


def test_agents_of_one_process_share_nothing() -> None:
    one, other = metrics(), metrics()
    one.started_pods.inc()
    assert series(one, "kubelet_started_pods_total") == {(): 1.0}
    assert series(other, "kubelet_started_pods_total") == {(): 0.0}


def test_a_field_of_the_class_is_its_declaration() -> None:
    assert isinstance(Metrics.evictions, Metric)
    assert (Metrics.evictions.name, Metrics.evictions.labels) == ("kubelet_evictions", ("eviction_signal",))


def test_the_node_and_the_version_are_exposed_without_times_of_creation() -> None:
    text = generate_latest(metrics().registry).decode()
    assert 'kubelet_node_name{node="node-1"} 1.0' in text
    assert 'kubernetes_build_info{git_version="v1.37.1"} 1.0' in text
    assert "_created" not in text
