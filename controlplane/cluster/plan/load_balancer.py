"""Addresses for Services of type LoadBalancer: the pool of a cluster, and what its daemons may do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from controlplane.cluster.model import BALANCER_HOST, Cluster, IPNetwork
from controlplane.cluster.plan.certificates import BALANCER_USER
from controlplane.cluster.plan.manifests import Object, binding, typed
from loadbalancer.model import NAMESPACE
from loadbalancer.plan.pool import Pool, Range, parse
from nodelib.errors import Invalid

_GROUP = "rbac.authorization.k8s.io"
_RBAC = f"{_GROUP}/v1"
_FIRST6, _LAST6 = 0x1000, 0x1FFF  # host numbers of the IPv6 pool
_MOST = 1000  # addresses of the IPv4 pool

_RULES = [
    {"apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
]
_LEASES = [
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "verbs": ["get", "list", "watch", "create", "update", "patch"],
    }
]


def pool(cluster: Cluster) -> Pool:
    """The addresses that Services get. Raises Invalid for ranges that cannot be read."""
    asked = cluster.options.load_balancer_pool
    return parse([asked]) if asked else default_pool(cluster)


def default_pool(cluster: Cluster) -> Pool:
    """The last quarter of the nodes' subnet without its nodes; a /26 and larger ones have room for 20 before that."""
    found = []
    last_node = BALANCER_HOST + max(member.number for member in cluster.members)
    for network in cluster.networks:
        if network.version == 6:
            found.append(Range(network[_FIRST6], network[_LAST6]))
            continue
        first = max(network.num_addresses * 3 // 4, last_node + 1)
        last = min(network.num_addresses - 2, first + _MOST - 1)
        if first <= last:
            found.append(Range(network[first], network[last]))
    return Pool(tuple(found))


def problem(cluster: Cluster) -> str:
    """Why the pool has addresses that nobody would find, or that others have; "" if it has not."""
    options = cluster.options
    try:
        ranges = pool(cluster).ranges
    except Invalid as error:
        return error.message
    if options.gives_addresses and not ranges:
        return f"the nodes' subnet {cluster.subnet} has no room for addresses of Services beside its nodes"
    return next(_strays(cluster, ranges), "") if options.load_balancer_pool else ""


def _strays(cluster: Cluster, ranges: Iterable[Range]) -> Iterator[str]:
    subnets = " and ".join(map(str, cluster.networks))
    for one in ranges:
        home = next((network for network in cluster.networks if _within(one, network)), None)
        if home is None:
            yield f"{one} is not in the nodes' subnet {subnets}: nobody would ask for it on their link"
            continue
        for number in (0, 1, 2, BALANCER_HOST, *(BALANCER_HOST + member.number for member in cluster.members)):
            if home[number] in one:
                yield f"{one} has {home[number]}, which is an address of the cluster itself"
        if home.version == 4 and home[-1] in one:
            yield f"{one} has the broadcast address {home[-1]}"


def objects() -> list[Object]:
    """The namespace of the daemons' Leases, and their rights."""
    subject = {"apiGroup": _GROUP, "kind": "User", "name": BALANCER_USER}
    reference = {"apiGroup": _GROUP, "kind": "Role", "name": NAMESPACE}
    return [
        typed("v1", "Namespace", NAMESPACE),
        typed(_RBAC, "Role", NAMESPACE, NAMESPACE, rules=_LEASES),
        typed(_RBAC, "RoleBinding", NAMESPACE, NAMESPACE, roleRef=reference, subjects=[subject]),
        typed(_RBAC, "ClusterRole", BALANCER_USER, rules=_RULES),
        binding(BALANCER_USER, BALANCER_USER, subject),
    ]


def _within(one: Range, network: IPNetwork) -> bool:
    return one.first in network and one.last in network
