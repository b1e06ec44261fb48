"""The values that network policies are made of, frozen (networking.k8s.io/v1, and what of Pods and Nodes they use)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple

from nodelib.firewall.objects import Family

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
VERSION = {Family.IPV4: 4, Family.IPV6: 6}


class Name(NamedTuple):
    """Of a namespaced object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Direction(StrEnum):
    """As policyTypes names it: to the selected pods, or from them."""

    INGRESS = "Ingress"
    EGRESS = "Egress"


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of matchExpressions. `operator`: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def fits(self, labels: Mapping[str, str]) -> bool:
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        inside = labels.get(self.key) in self.values
        return inside if self.operator == "In" else not inside


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector: all of its requirements must fit, so the empty one selects everything."""

    requirements: tuple[Requirement, ...] = ()

    def fits(self, labels: Mapping[str, str]) -> bool:
        return all(one.fits(labels) for one in self.requirements)


@dataclass(frozen=True, slots=True)
class Selection:
    """Pods: of one namespace, or of the namespaces that `namespaces` selects."""

    pods: Selector
    namespace: str = ""
    namespaces: Selector | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.pods, self.namespace, self.namespaces)))

    def __hash__(self) -> int:
        """Made once: each plan looks up every selection several times."""
        return self._hash

    def selects(self, party: Party) -> bool:
        """Whether the pod of that end is one of them."""
        pod = party.pod
        if pod is None or not self.pods.fits(pod.labels):
            return False
        if self.namespaces is None:
            return pod.name.namespace == self.namespace
        return party.namespace is not None and self.namespaces.fits(party.namespace)


@dataclass(frozen=True, slots=True)
class Block:
    """An ipBlock: addresses, except for some."""

    cidr: Network
    excepted: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class Networks:
    """Addresses of any of these networks, of both families."""

    cidrs: tuple[Network, ...]


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """The addresses of the nodes with these labels."""

    nodes: Selector


@dataclass(frozen=True, slots=True)
class DomainNames:
    """The addresses that a pod has been given for these names, in lower case and without a dot at their end.

    `*.` at the beginning stands for one or more labels.
    """

    names: tuple[str, ...]

    def have(self, name: str) -> bool:
        """Whether a name, written alike, is one of them."""
        return any(name.endswith(one[1:]) if one.startswith("*.") else name == one for one in self.names)


@dataclass(frozen=True, slots=True)
class Resolvers:
    """The DNS servers whose answers are believed, and how the kernel holds these (see `nodelib.nft.actions.Queue`)."""

    servers: tuple[Address, ...]
    extension: bool = False


Peer = Selection | Block | Networks | NodeSelection | DomainNames


@dataclass(frozen=True, slots=True, order=True)
class PortRange:
    """Ports `first` to `last`, both included. `protocol`: TCP, UDP or SCTP."""

    protocol: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, order=True)
class NamedPort:
    """The port that the target pod's containers call `name`."""

    protocol: str
    name: str


# What changes with Pods and Nodes, and is kept up to date by the index.
Tracked = Selection | NamedPort | NodeSelection


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One entry of ingress or egress. None: not restricted; an empty tuple is an entry that fits nothing."""

    peers: tuple[Peer, ...] | None = None
    ports: tuple[PortRange, ...] | None = None
    named: tuple[NamedPort, ...] = ()


@dataclass(frozen=True, slots=True)
class Policy:
    """A NetworkPolicy. `rules` has an entry for each direction in which it isolates the pods that it selects."""

    name: Name
    selection: Selection
    rules: Mapping[Direction, tuple[PolicyRule, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pod:
    """What policies depend on. `addresses` is empty for a pod that none applies to: of the host network, or ended."""

    name: Name
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str = ""
    addresses: tuple[Address, ...] = ()
    ports: Mapping[NamedPort, frozenset[int]] = field(default_factory=dict)
    host_network: bool = False
    ended: bool = False

    def address(self, family: Family) -> Address | None:
        """Its address of one family."""
        return next((one for one in self.addresses if one.version == VERSION[family]), None)


@dataclass(frozen=True, slots=True)
class Party:
    """One end of a flow: its address, and the pod that has it, with the labels of that pod's namespace."""

    address: Address
    pod: Pod | None = None
    namespace: Mapping[str, str] | None = None

    @property
    def name(self) -> Name | None:
        return None if self.pod is None else self.pod.name


@dataclass(frozen=True, slots=True)
class NodePlace:
    """A Node's labels and addresses."""

    labels: Mapping[str, str] = field(default_factory=dict)
    addresses: tuple[Address, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Part of the input that was left out, and why. What it would have allowed stays closed."""

    obj: str
    message: str
