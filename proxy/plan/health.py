"""Which Services want a health check of their own, and how many ready endpoints they have on this node."""

from __future__ import annotations

from collections.abc import Container

from proxy.model import Desired, NamespacedName


def health_check_ports(desired: Desired) -> dict[NamespacedName, int]:
    return {
        name.service: port.health_check_node_port for name, port in desired.ports.items() if port.health_check_node_port
    }


def local_ready(desired: Desired, wanted: Container[NamespacedName]) -> dict[NamespacedName, int]:
    """Of those in `wanted`, by address: two ports of one Pod are one endpoint. A terminating one does not count."""
    found: dict[NamespacedName, set[str]] = {}
    for name, endpoints in desired.endpoints.items():
        if name.service in wanted:
            for endpoint in endpoints:
                if endpoint.local and endpoint.ready:
                    found.setdefault(name.service, set()).add(endpoint.ip)
    return {name: len(addresses) for name, addresses in found.items()}
