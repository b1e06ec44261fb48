"""What is answered about the network: links and rules of nodes, Services, refused packets, the way of a packet."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ServiceSaid:
    """What `service` says: what is wrong, with what to do, and the rest as lines."""

    lines: tuple[str, ...]
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a node's network. `behind`: the row key of the pod at its other end; `text`: the object itself."""

    name: str
    kind: str
    master: str
    addresses: tuple[str, ...]
    state: str
    mtu: int
    behind: str
    received: int
    sent: int
    dropped: int
    text: str


@dataclass(frozen=True, slots=True)
class WiredRoute:
    """`leads`: to whose pods, in words; `node`: which one has the address `via`."""

    to: str
    via: str
    dev: str
    kind: str
    leads: str
    node: str


@dataclass(frozen=True, slots=True)
class Sysctl:
    name: str
    value: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Wired:
    """How a node is wired, by its kernel."""

    links: tuple[Link, ...] = ()
    routes: tuple[WiredRoute, ...] = ()
    sysctls: tuple[Sysctl, ...] = ()


@dataclass(frozen=True, slots=True)
class TableRule:
    """A rule of a packet filter's table, or one of its sets. `packets`: its counter, None without one."""

    chain: str
    text: str
    packets: int | None
    comment: str


@dataclass(frozen=True, slots=True)
class NodeRules:
    """The rules of a policy on one node."""

    node: str
    rules: tuple[TableRule, ...]


@dataclass(frozen=True, slots=True)
class Enforced:
    """A policy on the nodes that have rules of it. `problems`: what of it is not understood, and what is done then."""

    nodes: tuple[NodeRules, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """A policy that selects a pod. `how`: its directions; `tier`: of a ClusterNetworkPolicy, "" for a NetworkPolicy."""

    kind: str
    name: str
    how: str
    tier: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """Packets of one flow that network policies refused. `source`, `to`: a pod, or an address that is none.

    `policies`: row keys of those that refused it.
    """

    node: str
    last: float
    count: int
    direction: str
    source: str
    to: str
    port: str
    by: str
    remedy: str
    policies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hop:
    """One rule that the packet meets. `meaning`: what it does, in words, where that is known.

    `policies`: row keys of the network policies whose rule it is.
    """

    table: str
    chain: str
    rule: str
    meaning: str
    packets: int | None
    decides: bool
    certain: bool
    policies: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leg:
    """The packet on one node. `interface`: where it came in, "" for one that the node sends.

    `refused`: a rule ends its way here, and it is the last of `hops`.
    """

    node: str
    interface: str
    source: str
    destination: str
    hops: tuple[Hop, ...]
    route: str
    end: str
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """One possible way of a packet, and how it ends."""

    arrives: bool
    end: str
    legs: tuple[Leg, ...]


@dataclass(frozen=True, slots=True)
class Traced:
    """The answer of `trace`: the verdict and its reasons, and every way that is possible."""

    verdict: tuple[str, ...]
    source: str
    to: str
    ways: tuple[Way, ...]
    notes: tuple[str, ...] = field(default=())
