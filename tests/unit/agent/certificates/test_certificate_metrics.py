"""The node's certificates on /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from agent.certificates.edge.metrics import CertificateCollector, CertificateMetrics


def test_metrics_have_upstreams_names() -> None:
    registry = CollectorRegistry()
    registry.register(CertificateCollector(lambda: CertificateMetrics(120.0, 2), CertificateMetrics))
    text = generate_latest(registry).decode()
    assert "kubelet_certificate_manager_client_ttl_seconds 120.0" in text
    assert "kubelet_certificate_manager_server_ttl_seconds +Inf" in text
    assert "kubelet_certificate_manager_client_expiration_renew_errors_total 2.0" in text
