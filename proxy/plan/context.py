"""What the rules depend on besides Services and endpoints: the configuration and the node, as a value."""

from __future__ import annotations

from dataclasses import dataclass

from nodelib.firewall.objects import Family, Words

CT_INVALID_COUNTER = "ct_state_invalid_dropped_pkts"
LOCALHOST_COUNTER = "localhost_nps_accepted_pkts"


@dataclass(frozen=True, slots=True)
class LocalDetector:
    """How to recognize traffic of this cluster's (or node's) pods (upstream pkg/proxy/util, LocalTrafficDetector).

    By source address or by interface; neither: it cannot be recognized. An `interface` that ends in "+" is a prefix.
    """

    cidr: str = ""
    interface: str = ""

    @property
    def if_local(self) -> Words:
        """The match in iptables' words."""
        if self.cidr:
            return ("-s", self.cidr)
        return ("-i", self.interface) if self.interface else ()

    @property
    def if_not_local(self) -> Words:
        """The opposite match; () when local traffic cannot be recognized."""
        return ("!", *self.if_local) if self else ()

    def __bool__(self) -> bool:
        return bool(self.cidr or self.interface)


def by_cidr(cidr: str) -> LocalDetector:
    return LocalDetector(cidr=cidr)


def by_interface(name: str) -> LocalDetector:
    """A `name` that ends in "+" is a prefix."""
    return LocalDetector(interface=name)


@dataclass(frozen=True, slots=True)
class Context:
    """The context of one address family on this node. `node_port_ips` None: NodePorts on every local address."""

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
    counters: frozenset[str] = frozenset()  # names of the nfacct counters that the kernel has
    large: bool = False  # iptables mode: so many endpoints that their comments are left out
    service_cidrs: tuple[str, ...] = ()  # the ranges of cluster IPs; used by the nftables mode


def mark_text(bit: int) -> str:
    """The masquerade mark of `bit` (0 to 31), as upstream prints it."""
    return f"0x{1 << bit:08x}"
