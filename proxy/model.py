"""The values that the service proxy works on, frozen: service ports, endpoints, the node, a sync's report."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import repeat
from typing import Literal, NamedTuple

from nodelib.firewall.objects import Family

Protocol = Literal["TCP", "UDP", "SCTP"]
PROTOCOLS: tuple[Protocol, ...] = ("TCP", "UDP", "SCTP")
IPNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network


class NamespacedName(NamedTuple):
    """A Service's name."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ServicePortName(NamedTuple):
    """One port of a Service: the key that Services and EndpointSlices share (upstream ServicePortName)."""

    service: NamespacedName
    port: str
    protocol: Protocol

    def __str__(self) -> str:
        """As upstream prints and hashes it: "ns/name:port", or "ns/name" for a port without a name."""
        return f"{self.service}:{self.port}" if self.port else str(self.service)


@dataclass(frozen=True, slots=True)
class ServicePort:
    """What the rules of one port depend on (upstream BaseServicePortInfo). All addresses are of one family."""

    name: ServicePortName
    cluster_ip: str
    port: int
    node_port: int = 0
    external_ips: tuple[str, ...] = ()
    load_balancer_ips: tuple[str, ...] = ()
    source_ranges: tuple[str, ...] = ()
    affinity_seconds: int = 0  # 0: no session affinity
    health_check_node_port: int = 0
    external_local: bool = False
    internal_local: bool = False

    @property
    def protocol(self) -> str:
        """In lower case, as iptables and the chain hashes need it."""
        return self.name.protocol.lower()

    @property
    def externally_accessible(self) -> bool:
        return bool(self.node_port or self.load_balancer_ips or self.external_ips)

    @property
    def address_count(self) -> int:
        """Addresses beside the cluster IP and those of nodes."""
        return len(self.load_balancer_ips) + len(self.external_ips)

    @property
    def uses_cluster_endpoints(self) -> bool:
        """True with externalTrafficPolicy Local too: traffic from pods and the node itself is short-circuited."""
        return not self.internal_local or self.externally_accessible

    @property
    def uses_local_endpoints(self) -> bool:
        return self.internal_local or (self.external_local and self.externally_accessible)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address and port behind a service port (upstream BaseEndpointInfo)."""

    ip: str
    port: int
    local: bool = False
    ready: bool = True
    serving: bool = True
    terminating: bool = False
    zone_hints: frozenset[str] = frozenset()
    node_hints: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the API says about the node that this proxy runs on."""

    name: str
    zone: str = ""
    ips: tuple[str, ...] = ()
    pod_cidrs: tuple[str, ...] = ()
    exists: bool = False
    deleting: bool = False
    to_be_deleted: bool = False  # tainted by the cluster autoscaler


@dataclass(frozen=True, slots=True)
class Problem:
    """Part of the input that was left out, and why. Everything else is served."""

    obj: str
    message: str


@dataclass(frozen=True, slots=True)
class Desired:
    """What one address family should serve: every service port, and the endpoints of each, sorted by address."""

    family: Family
    ports: dict[ServicePortName, ServicePort] = field(default_factory=dict)
    endpoints: dict[ServicePortName, tuple[Endpoint, ...]] = field(default_factory=dict)

    @property
    def endpoint_count(self) -> int:
        """Endpoints of existing service ports."""
        # Without a Python loop: the iptables mode asks at each change.
        return sum(map(len, map(self.endpoints.get, self.ports, repeat(()))))

    def size(self, names: Iterable[ServicePortName]) -> int:
        """How much work the rules of these ports are, roughly: each address with each endpoint."""
        found = ((self.ports.get(name), self.endpoints.get(name, ())) for name in names)
        return sum((1 + port.address_count) * (1 + len(endpoints)) for port, endpoints in found if port is not None)


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What one sync did, for the metrics and the log. `rules_*` count rules by iptables table."""

    full: bool
    rules_total: dict[str, int] = field(default_factory=dict)
    rules_written: dict[str, int] = field(default_factory=dict)
    no_local_internal: int = 0
    no_local_external: int = 0
    problems: tuple[Problem, ...] = ()  # what could not be written; everything else was
