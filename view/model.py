"""What the page is made of: the kinds that it knows, what it looks at, and what is answered about that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodelib.json_values import Json

NODE, POD, SERVICE, SLICE, POLICY = "node", "pod", "service", "endpointslice", "networkpolicy"
PATHS: Mapping[str, str] = {
    NODE: "/api/v1/nodes",
    POD: "/api/v1/pods",
    SERVICE: "/api/v1/services",
    SLICE: "/apis/discovery.k8s.io/v1/endpointslices",
    POLICY: "/apis/networking.k8s.io/v1/networkpolicies",
}
CLUSTER_POLICY, NAMESPACE = "clusternetworkpolicy", "namespace"
CLUSTER_POLICIES = ("policy.networking.k8s.io", "v1alpha2", "clusternetworkpolicies")  # group, version, plural
# Followed in a cluster that has their definition; which pods they select depends on the labels of namespaces.
CUSTOM_PATHS: Mapping[str, str] = {
    CLUSTER_POLICY: "/apis/{}/{}/{}".format(*CLUSTER_POLICIES),
    NAMESPACE: "/api/v1/namespaces",
}
# Kinds with rows of their own, and the only ones whose objects are ever sent.
SHOWN = (NODE, POD, SERVICE, POLICY, CLUSTER_POLICY)

Key = tuple[str, str]  # (namespace, name)
Row = Json  # a line of a table as the browser gets it; `key` is row_key()
Stores = Mapping[str, Mapping[Key, Json]]  # by kind
LONGEST_REQUEST = 4096  # bytes of a request's target, and of what a browser sends


@dataclass(frozen=True, slots=True)
class Look:
    """One object that a browser looks at."""

    kind: str
    key: Key


@dataclass(frozen=True, slots=True)
class Wait:
    """What a pod waits for, what is wrong, and what to do. `since`: wall seconds, 0: unknown; `share`: what is done."""

    text: str
    error: str = ""
    action: str = ""
    since: float = 0.0
    share: float | None = None


@dataclass(frozen=True, slots=True)
class ServiceSaid:
    """What `service` says: what is wrong, with what to do, and the rest as lines."""

    lines: tuple[str, ...]
    problems: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a pod's start as its node recorded it. `seconds`: None while it is under way; `part`: of another.

    `kind`: what is done, in a word that is the same for all pods.
    """

    at: float
    name: str
    seconds: float | None
    outcome: str
    part: bool = False
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Why:
    """The answer of `why` about one pod. `by_node`: its node answered, so that `steps` is the node's own record."""

    summary: str
    is_well: bool
    by_node: bool
    waits: tuple[Wait, ...] = ()
    ends: tuple[str, ...] = ()
    logs: tuple[tuple[str, tuple[str, ...]], ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class Pull:
    """An image that a pod waits for. `text`: how far it is; `share`: the same from 0 to 1, None while it is unknown."""

    on: str
    text: str
    share: float | None
    since: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What a container uses or is denied, or how fast a probe answers. `figures`: some are counters."""

    of: str
    text: str
    figures: Mapping[str, float]
    action: str = ""


@dataclass(frozen=True, slots=True)
class PodRecord:
    """What a node did for one of its pods."""

    key: Key
    steps: tuple[Step, ...]
    pulls: tuple[Pull, ...] = ()


@dataclass(frozen=True, slots=True)
class Image:
    """An image on a node's disk. `held`: by whom, "" for one that can be removed."""

    name: str
    size: int
    held: str


@dataclass(frozen=True, slots=True)
class ImageDisk:
    """The file system of a node's images. `high`, `low`: percent in use at which a collection begins and ends."""

    capacity: int
    available: int
    high: int
    low: int
    images: tuple[Image, ...]
    words: tuple[str, ...]  # what a collection would do, and what the last one did


@dataclass(frozen=True, slots=True)
class PodDisk:
    """What a pod holds of its node's disk. `parts`: in words, with their sizes, the largest first."""

    key: Key
    used: int
    parts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DiskHolders:
    """The pods that hold most of a node's disk; `used` is what all hold. `unknown`: why that is not known."""

    used: int = 0
    pods: tuple[PodDisk, ...] = ()
    left_out: int = 0
    unknown: str = ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """An eviction threshold: met when less than `least` is available. `since`: since when it is met, 0: it is not."""

    signal: str
    available: int
    capacity: int
    least: int
    grace: float
    since: float


@dataclass(frozen=True, slots=True)
class Evicted:
    """A pod that a node evicted."""

    pod: str
    at: float
    message: str


@dataclass(frozen=True, slots=True)
class Daemon:
    """A program that a node's supervisor keeps running. `age`: for how many seconds it has been running."""

    name: str
    alive: bool
    pid: int
    age: float
    starts: int
    last_exit: str


@dataclass(frozen=True, slots=True)
class NodeWork:
    """What a node is at, as far as it answers; `silent` has why a part of it is not known."""

    pods: tuple[PodRecord, ...] = ()
    disk: ImageDisk | None = None
    holders: DiskHolders = DiskHolders(unknown="the node does not say")
    thresholds: tuple[Threshold, ...] = ()
    evicted: tuple[Evicted, ...] = ()
    daemons: tuple[Daemon, ...] = ()
    silent: tuple[str, ...] = ()


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
class Question:
    """From where to where a packet goes, as the words of `trace`."""

    source: str
    to: str
    protocol: str = ""


@dataclass(frozen=True, slots=True)
class PacketLook:
    """The view of packets: the walk that it follows, if one is asked for, and what is refused meanwhile."""

    asked: Question | None = None


@dataclass(frozen=True, slots=True)
class WiringLook:
    """The cluster as it is wired: the links and routes of all nodes."""


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


def row_key(kind: str, key: Key) -> str:
    """What tells a row from all others: "pod/shop/web-0", "node//node1"."""
    return f"{kind}/{key[0]}/{key[1]}"
