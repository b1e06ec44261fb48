"""Chain names of the iptables mode, with the same hashes as upstream's (pkg/proxy/iptables/proxier.go)."""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

from proxy.model import ServicePort

SERVICE_PREFIXES = ("KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-")


class ChainNames(NamedTuple):
    """The chains of one service port: for policy Cluster and Local, for external traffic, for source ranges."""

    cluster: str
    local: str
    external: str
    firewall: str


def chain_names(port: ServicePort) -> ChainNames:
    hashed = _hash(f"{port.name}{port.protocol}")
    return ChainNames(f"KUBE-SVC-{hashed}", f"KUBE-SVL-{hashed}", f"KUBE-EXT-{hashed}", f"KUBE-FW-{hashed}")


def endpoint_chain(port: ServicePort, endpoint: str) -> str:
    """`endpoint` is "ip:port", "[ip]:port" for IPv6."""
    return f"KUBE-SEP-{_hash(f'{port.name}{port.protocol}{endpoint}')}"


def is_service_chain(name: str) -> bool:
    return name.startswith(SERVICE_PREFIXES)


def _hash(text: str) -> str:
    return base64.b32encode(hashlib.sha256(text.encode()).digest()[:10]).decode("ascii")
