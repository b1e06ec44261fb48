"""Metric names as scrapers know them."""

from __future__ import annotations

import pytest
from prometheus_client import generate_latest

from agent.build.metrics import Metrics
from agent.common.model.pods import PodStage
from tests.fakes.agent_view import FakeView, add_pod


def test_pods_are_counted_when_they_are_scraped() -> None:
    metrics, view = Metrics("node-1", "v1.37.1"), FakeView()
    stages = [
        PodStage("sync", "desired", "", active=True),
        PodStage("terminating", "orphan", "true", mirrored=True),
        PodStage("terminating", "runtime_only", "unknown"),
    ]
    metrics.watch_pods(view, lambda: stages)
    add_pod(view, "web", "u1")
    text = generate_latest(metrics.registry).decode()
    assert "kubelet_running_pods 1.0" in text
    assert 'kubelet_running_containers{container_state="running"} 1.0' in text
    assert 'kubelet_desired_pods{static=""} 1.0' in text
    assert 'kubelet_desired_pods{static="true"} 0.0' in text
    assert 'kubelet_active_pods{static=""} 1.0' in text
    assert "kubelet_mirror_pods 1.0" in text
    working = [line for line in text.splitlines() if line.startswith("kubelet_working_pods{")]
    assert len(working) == 15, "every combination has its series, whether there is such a pod or not"
    assert 'kubelet_working_pods{config="desired",lifecycle="sync",static=""} 1.0' in working
    assert 'kubelet_working_pods{config="orphan",lifecycle="terminating",static="true"} 1.0' in working
    assert sum(line.endswith(" 1.0") for line in working) == 3
    assert 'kubelet_node_name{node="node-1"} 1.0' in text
    assert "_created" not in text


def test_runtime_operations() -> None:
    metrics = Metrics("node-1", "v1.37.1")
    with metrics.runtime_operation("run_podsandbox"):
        pass
    with pytest.raises(RuntimeError), metrics.runtime_operation("run_podsandbox"):
        raise RuntimeError
    text = generate_latest(metrics.registry).decode()
    assert 'kubelet_runtime_operations_total{operation_type="run_podsandbox"} 2.0' in text
    assert 'kubelet_runtime_operations_errors_total{operation_type="run_podsandbox"} 1.0' in text
    assert 'kubelet_runtime_operations_duration_seconds_count{operation_type="run_podsandbox"} 2.0' in text
