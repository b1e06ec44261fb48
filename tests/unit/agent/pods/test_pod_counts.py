"""Pods and containers as a scrape counts them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from agent.common.model.pods import PodStage
from agent.pods.edge.pod_counts import PodCounts
from tests.fakes.agent_view import FakeView, add_pod


def test_pods_are_counted_when_they_are_scraped() -> None:
    registry, view = CollectorRegistry(), FakeView()
    stages = [
        PodStage("sync", "desired", "", active=True),
        PodStage("terminating", "orphan", "true", mirrored=True),
        PodStage("terminating", "runtime_only", "unknown"),
    ]
    registry.register(PodCounts(view, lambda: stages))
    add_pod(view, "web", "u1")
    text = generate_latest(registry).decode()
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
