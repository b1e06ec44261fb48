"""The kinds of objects that the page knows, and what of them a browser may look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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


def row_key(kind: str, key: Key) -> str:
    """What tells a row from all others: "pod/shop/web-0", "node//node1"."""
    return f"{kind}/{key[0]}/{key[1]}"
