"""The values that the pod network works on, frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Interface = IPv4Interface | IPv6Interface


@dataclass(frozen=True, slots=True, order=True)
class AttachmentKey:
    """Identifies one attachment to a network: container ID and interface name (spec 1.1, "Parameters")."""

    container_id: str
    ifname: str

    def __str__(self) -> str:
        return f"{self.container_id}/{self.ifname}"


@dataclass(frozen=True, slots=True)
class PortMapping:
    """One hostPort of a pod (capability `portMappings`). host_ip "" means every address of the node."""

    host_port: int
    container_port: int
    protocol: str = "tcp"
    host_ip: str = ""


@dataclass(frozen=True, slots=True)
class Attachment:
    """The store's record of one ADD. `addresses`: one per address family; `created`: wall-clock seconds."""

    key: AttachmentKey
    addresses: tuple[Address, ...]
    port_mappings: tuple[PortMapping, ...] = ()
    pod: str = ""
    created: float = 0.0
    netns: str = ""  # the path given with ADD, to find the pod's end later


@dataclass(frozen=True, slots=True)
class AddressRange:
    """Addresses to hand out: `first` to `last` (both included) of `subnet`, but never `gateway`."""

    subnet: Network
    first: Address
    last: Address
    gateway: Address

    def __contains__(self, address: Address) -> bool:
        return address.version == self.subnet.version and int(self.first) <= int(address) <= int(self.last)


RangeSet = tuple[AddressRange, ...]  # alternatives of one family: one address is taken from the set


@dataclass(frozen=True, slots=True)
class Route:
    """A route of a pod. `gateway` None: directly on the link."""

    destination: Network
    gateway: Address | None = None


@dataclass(frozen=True, slots=True)
class Bucket:
    """A token bucket: `rate` bytes per second, `burst` bytes at once, a queue of `limit` bytes."""

    rate: int
    burst: int
    limit: int


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """A pod's limits for the traffic that it receives and sends. None: no limit."""

    to_pod: Bucket | None = None
    from_pod: Bucket | None = None


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """Everything that ADD makes, in netlink's terms. cni.apply makes it, CHECK compares it."""

    bridge: str
    host_ifname: str
    ifname: str
    mtu: int
    addresses: tuple[Interface, ...]
    routes: tuple[Route, ...]
    mac: str = ""
    hairpin: bool = True
    bandwidth: Bandwidth = Bandwidth()
    ifb: str = ""  # the link in which the pod's outgoing packets queue, if there is a limit
    gateways: tuple[Neighbour, ...] = ()  # where the pod finds them
    neighbours: tuple[Neighbour, ...] = ()  # where the node finds the pod


@dataclass(frozen=True, slots=True)
class Tunnel:
    """The fixed properties of a VXLAN link. `local`: the node address that its packets are sent from."""

    vni: int
    port: int
    local: Address


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """A link as the kernel shows it. `master` and `index` are interface indexes, 0: none; `tunnel`: of a VXLAN link."""

    index: int
    name: str
    kind: str
    mac: str
    mtu: int
    up: bool
    master: int = 0
    tunnel: Tunnel | None = None


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """A route of the main table as the kernel shows it; `protocol` is rtm_protocol, `link` an interface index."""

    destination: Network
    gateway: Address | None
    link: int
    protocol: int


@dataclass(frozen=True, slots=True)
class Loss:
    """A route or an address of a link was removed, or the link itself, or it is down. `protocol`: rtm_protocol."""

    link: str
    protocol: int = 0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the pod network needs from a Node object. `created`: its creationTimestamp, which the API server sets."""

    name: str
    internal_ips: tuple[Address, ...] = ()
    pod_cidrs: tuple[Network, ...] = ()
    created: str = ""


@dataclass(frozen=True, slots=True)
class BridgePlan:
    """The node's bridge: `addresses` are the gateways of its pods."""

    name: str
    mac: str
    mtu: int
    addresses: tuple[Interface, ...]


@dataclass(frozen=True, slots=True)
class NodeRoute:
    """A route to another node's pods. `node`: its name, for messages.

    `link` "": the gateway is on one of this node's links; else the overlay's link, where it is assumed to be.
    """

    destination: Network
    gateway: Address
    node: str = field(default="", compare=False)
    link: str = ""


@dataclass(frozen=True, slots=True)
class OverlayPlan:
    """The node's VXLAN link. `addresses`: source addresses of the node's own packets through it (no prefix route)."""

    name: str
    tunnel: Tunnel
    mac: str
    mtu: int
    addresses: tuple[Interface, ...]


@dataclass(frozen=True, slots=True)
class Forward:
    """A forwarding entry of the VXLAN link: frames to `mac` go to the node `remote`."""

    mac: str
    remote: Address


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A permanent neighbour entry of a link."""

    address: Address
    mac: str


@dataclass(frozen=True, slots=True)
class HostPort:
    """One hostPort of one pod."""

    mapping: PortMapping
    address: Address
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Listener:
    """A port at which a process of the node takes connections, or packets from anybody."""

    protocol: str
    address: Address
    port: int


@dataclass(frozen=True, slots=True)
class TunnelGuard:
    """The node's end of the overlay, which takes packets of nodes only.

    `port`, `local`: where they come to; `link`: where what was in them comes from; `pods`: addresses of all pods.
    """

    port: int
    local: Address
    link: str
    pods: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class FirewallFacts:
    """What the packet filter rules of one address family depend on.

    `pod_cidrs` and `host_ports` are of that family. `bridge_filtered`: bridge-nf-call-iptables (or -ip6tables) is on,
    so answers between pods of one bridge are translated back. `guard`: of an overlay between addresses of the family.
    """

    network: str
    bridge: str
    pod_cidrs: tuple[Network, ...]
    non_masquerade: tuple[Network, ...] = ()
    masquerade: bool = True
    host_ports: tuple[HostPort, ...] = ()
    bridge_filtered: bool = True
    version: int = 4
    guard: TunnelGuard | None = None


@dataclass(frozen=True, slots=True, order=True)
class Holder:
    """Who is charged for a connection: the pod that began it, or, if nobody of this node did, the one that received it.

    Addresses compare within a family only, so the text is what orders them.
    """

    address: str
    received: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Tracked connections of a holder: without an answer, answered (UDP, TCP that has ended), and TCP that lives."""

    holder: Holder
    unanswered: int = 0
    passing: int = 0
    living: int = 0

    @property
    def total(self) -> int:
        return self.unanswered + self.passing + self.living


@dataclass(frozen=True, slots=True)
class Connections:
    """What the table of connections has; `deleted`: what was deleted while it was counted."""

    entries: int
    held: tuple[Held, ...] = ()
    deleted: int = 0


@dataclass(frozen=True, slots=True)
class PodAddresses:
    """Who is who for connections. `names`: the pod of each address in use; `own`: addresses of the node itself."""

    ranges: tuple[Network, ...]
    names: dict[str, str]
    own: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Crowding:
    """What the guard of connections does now: what is said of each bounded pod, by its name, and totals so far.

    `limited` is empty, and `crowded` False, on nearly every node nearly always.
    """

    crowded: bool = False
    limited: dict[str, str] = field(default_factory=dict)
    deleted: int = 0
    refused: int = 0
