"""Health checks of single Services: which ports to serve, and how many ready endpoints this node has. Pure.

Upstream: pkg/proxy/healthcheck/service_health.go, fed by HealthCheckNodePorts and LocalReadyEndpoints.
"""

from __future__ import annotations

from collections.abc import Container

from proxy.model import Desired, NamespacedName


def health_check_ports(desired: Desired) -> dict[NamespacedName, int]:
    """The healthCheckNodePort of each Service that has one."""
    return {
        name.service: port.health_check_node_port for name, port in desired.ports.items() if port.health_check_node_port
    }


def local_ready(desired: Desired, wanted: Container[NamespacedName]) -> dict[NamespacedName, int]:
    """Ready local endpoints of each Service in `wanted`. They are counted by address: two ports of a Pod are one."""
    found: dict[NamespacedName, set[str]] = {}
    for name, endpoints in desired.endpoints.items():
        if name.service in wanted:
            for endpoint in endpoints:
                if endpoint.local and endpoint.ready:
                    found.setdefault(name.service, set()).add(endpoint.ip)
    return {name: len(addresses) for name, addresses in found.items()}
