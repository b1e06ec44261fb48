"""The kubelet's metrics as a scraper sees them."""

from __future__ import annotations

import inspect
from typing import Any

from prometheus_client import generate_latest

from agent.build.metrics import Metrics
from agent.common.metrics_port import Figures, ProbeLabels, Unmeasured
from agent.common.model.pods import Kind

PROBE = ProbeLabels("Liveness", "main", "web", "shop", "u1")


def feed(figures: Figures) -> None:
    figures.pod_running(0.2)
    figures.pod_started(3.0, 1.0)
    figures.pod_started(3.0, None)
    figures.pod_synced("create", 0.1)
    figures.status_sent(0.01)
    figures.sandbox_begun()
    figures.container_begun(Kind.INIT)
    figures.container_failed(Kind.MAIN, "RunContainerError")
    figures.image_pulled(2.0, 20 << 20)
    figures.image_pulled(2.0, 0)
    figures.relisted(0.1, 1000.0)
    figures.relisted(0.1, 1010.0)
    figures.probed(PROBE, "successful", 0.1)
    figures.probed(PROBE, "failed", 0.1)
    figures.pod_evicted("memory.available")
    figures.images_collected("space", 2)
    figures.shut_down(1000.0, 1010.0)
    figures.probe_gone(ProbeLabels("Readiness", "main", "web", "shop", "u1"))


def test_each_metric_has_upstreams_name() -> None:
    metrics = Metrics("node-1", "v1.37.1")
    feed(metrics)
    text = generate_latest(metrics.registry).decode()
    for line in (
        "kubelet_pod_start_duration_seconds_count 1.0",
        "kubelet_pod_start_total_duration_seconds_count 2.0",
        "kubelet_pod_start_sli_duration_seconds_count 1.0",
        'kubelet_pod_worker_duration_seconds_count{operation_type="create"} 1.0',
        "kubelet_pod_status_sync_duration_seconds_count 1.0",
        "kubelet_started_pods_total 1.0",
        'kubelet_started_containers_total{container_type="init_container"} 1.0',
        'kubelet_started_containers_errors_total{code="RunContainerError",container_type="container"} 1.0',
        'kubelet_image_pull_duration_seconds_count{image_size_in_bytes="10MB-100MB"} 1.0',
        'kubelet_image_pull_duration_seconds_count{image_size_in_bytes="N/A"} 1.0',
        "kubelet_pleg_relist_duration_seconds_count 2.0",
        "kubelet_pleg_relist_interval_seconds_sum 10.0",
        "kubelet_pleg_last_seen_seconds 1010.0",
    ):
        assert line in text
    probes = generate_latest(metrics.probe_registry).decode()
    who = 'container="main",namespace="shop",pod="web",pod_uid="u1",probe_type="Liveness"'
    assert f'prober_probe_total{{{who},result="successful"}} 1.0' in probes
    assert f'prober_probe_total{{{who},result="failed"}} 1.0' in probes
    assert (
        'prober_probe_duration_seconds_count{container="main",namespace="shop",pod="web",probe_type="Liveness"} 1.0'
        in probes
    )


def test_the_series_of_a_probe_end_with_its_pod() -> None:
    metrics = Metrics("node-1", "v1.37.1")
    metrics.probed(PROBE, "successful", 0.1)
    other = ProbeLabels("Readiness", "main", "web", "shop", "u1")
    metrics.probed(other, "successful", 0.1)
    metrics.probe_gone(PROBE)
    left = generate_latest(metrics.probe_registry).decode()
    assert "Liveness" not in left and "Readiness" in left


def test_a_sink_that_nobody_scrapes_takes_every_metric_and_keeps_nothing() -> None:
    sink = Unmeasured()
    wanted = {name for name, _ in inspect.getmembers(Figures, inspect.isfunction) if not name.startswith("_")}
    called: set[str] = set()

    class Recording:
        def __getattr__(self, name: str) -> Any:
            called.add(name)
            method = getattr(sink, name)
            assert inspect.signature(method) == inspect.signature(getattr(Metrics("n", "v"), name))
            return method

    feed(Recording())  # type: ignore[arg-type] # it answers to every name, which no Protocol can say
    assert called == wanted
    assert vars(sink) == {}
