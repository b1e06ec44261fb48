"""The node's certificates on /metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from agent.certificates.edge.metrics import CertificateCollector, CertificateFigures


def test_figures_carry_upstreams_names() -> None:
    registry = CollectorRegistry()
    registry.register(CertificateCollector(lambda: CertificateFigures(120.0, 2), CertificateFigures))
    text = generate_latest(registry).decode()
    assert "kubelet_certificate_manager_client_ttl_seconds 120.0" in text
    assert "kubelet_certificate_manager_server_ttl_seconds +Inf" in text
    assert "kubelet_certificate_manager_client_expiration_renew_errors_total 2.0" in text
