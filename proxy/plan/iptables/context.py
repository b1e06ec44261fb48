"""What the rules depend on beside Services and endpoints: configuration and node, as values."""

from __future__ import annotations

from dataclasses import dataclass

from nodelib.firewall.objects import Family, Words

LARGE_CLUSTER_ENDPOINTS = 1000
CT_INVALID_COUNTER = "ct_state_invalid_dropped_pkts"
LOCALHOST_COUNTER = "localhost_nps_accepted_pkts"


@dataclass(frozen=True, slots=True)
class LocalDetector:
    """How to tell traffic of this cluster's (or node's) pods; no words: it cannot be told."""

    if_local: Words = ()
    if_not_local: Words = ()

    def __bool__(self) -> bool:
        return bool(self.if_local)


def by_cidr(cidr: str) -> LocalDetector:
    return LocalDetector(("-s", cidr), ("!", "-s", cidr))


def by_interface(name: str) -> LocalDetector:
    """`name` ends in "+" for a prefix."""
    return LocalDetector(("-i", name), ("!", "-i", name))


@dataclass(frozen=True, slots=True)
class Context:
    """One family on this node. `node_port_ips` None: NodePorts on every local address."""

    family: Family = Family.IPV4
    node: str = ""
    zone: str = ""
    node_ip: str = ""
    mark: str = "0x00004000"
    masquerade_all: bool = False
    detector: LocalDetector = LocalDetector()
    localhost_node_ports: bool = True
    node_port_ips: tuple[str, ...] | None = None
    tcp_liberal: bool = False
    counters: frozenset[str] = frozenset()  # nfacct counters that the kernel has
    large: bool = False


def mark_text(bit: int) -> str:
    """The masquerade mark of `bit` (0 to 31), as upstream prints it."""
    return f"0x{1 << bit:08x}"
