"""What the rules depend on beside Services and endpoints: configuration and node, as values."""

from __future__ import annotations

from dataclasses import dataclass

from nodelib.firewall.objects import Family, Words

CT_INVALID_COUNTER = "ct_state_invalid_dropped_pkts"
LOCALHOST_COUNTER = "localhost_nps_accepted_pkts"


@dataclass(frozen=True, slots=True)
class LocalDetector:
    """How to tell traffic of this cluster's (or node's) pods: by source or by interface; neither: it cannot be told.

    An `interface` that ends in "+" is a prefix.
    """

    cidr: str = ""
    interface: str = ""

    @property
    def if_local(self) -> Words:
        """In words of iptables."""
        if self.cidr:
            return ("-s", self.cidr)
        return ("-i", self.interface) if self.interface else ()

    @property
    def if_not_local(self) -> Words:
        return ("!", *self.if_local) if self else ()

    def __bool__(self) -> bool:
        return bool(self.cidr or self.interface)


def by_cidr(cidr: str) -> LocalDetector:
    return LocalDetector(cidr=cidr)


def by_interface(name: str) -> LocalDetector:
    """`name` ends in "+" for a prefix."""
    return LocalDetector(interface=name)


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
    large: bool = False  # iptables mode: more endpoints than deserve a comment each
    service_cidrs: tuple[str, ...] = ()  # what cluster IPs are given from; used by the nftables mode


def mark_text(bit: int) -> str:
    """The masquerade mark of `bit` (0 to 31), as upstream prints it."""
    return f"0x{1 << bit:08x}"
