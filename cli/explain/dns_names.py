"""The names that the cluster's DNS answers, read back into what they stand for. Pure.

https://github.com/kubernetes/dns/blob/master/docs/specification.md; a pod's search domains allow the shorter forms.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DnsName:
    """A Service, an endpoint of it (`host`) or a port of it (`port`, `protocol`); or an address that is written out."""

    namespace: str
    service: str = ""
    host: str = ""
    port: str = ""
    protocol: str = ""
    address: str = ""


def parse(text: str, domain: str) -> DnsName | None:
    """The name, None for one that is not the cluster's. NAME.NAMESPACE alone is taken for a Service, too."""
    labels = text.rstrip(".").lower().removesuffix(f".{domain.lower()}").split(".")
    if len(labels) == 2 and all(labels):
        return DnsName(labels[1], labels[0])
    if len(labels) < 3 or not all(labels):
        return None
    *rest, kind = labels
    if kind == "pod" and len(rest) == 2:
        address = _written_out(rest[0])
        return DnsName(rest[1], address=address) if address else None
    if kind != "svc":
        return None
    port = protocol = ""
    if len(rest) == 4 and rest[0].startswith("_") and rest[1].startswith("_"):
        port, protocol, rest = rest[0][1:], rest[1][1:], rest[2:]
    if len(rest) == 2:
        return DnsName(rest[1], rest[0], port=port, protocol=protocol)
    return DnsName(rest[2], rest[1], host=rest[0]) if len(rest) == 3 else None


def service_of(text: str, domain: str) -> tuple[str, str] | None:
    """(namespace, name) of the Service that a full name ("web.shop.svc" at least) stands for."""
    found = parse(text, domain)
    full = text.rstrip(".").lower().removesuffix(f".{domain.lower()}").endswith(".svc")
    return (found.namespace, found.service) if full and found is not None and found.service and not found.host else None


def _written_out(label: str) -> str:
    for separator in (".", ":"):
        try:
            return str(ipaddress.ip_address(label.replace("-", separator)))
        except ValueError:
            continue
    return ""
