"""Which endpoints of a service port are used from this node.

Follows upstream pkg/proxy/topology.go (CategorizeEndpoints): traffic policies, topology hints, and, when no endpoint
is ready, the fall-back to endpoints that are terminating but still serve. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from proxy.model import Endpoint, ServicePort

Endpoints = tuple[Endpoint, ...]


@dataclass(frozen=True, slots=True)
class Categories:
    """`cluster`, `local`: endpoints for that traffic policy; `reachable`: their union; `any`: some exist anywhere."""

    cluster: Endpoints = ()
    local: Endpoints = ()
    reachable: Endpoints = ()
    any: bool = False


NONE = Categories()


def categorize(endpoints: Sequence[Endpoint], port: ServicePort, node: str, zone: str) -> Categories:
    """The endpoints of `port` that are used from `node` in `zone`, by traffic policy."""
    if not endpoints:
        return NONE
    cluster: Endpoints = ()
    hinted = False
    if port.uses_cluster_endpoints:
        cluster, hinted = _cluster(endpoints, node, zone)
    if not port.uses_local_endpoints:
        return Categories(cluster, (), cluster, bool(cluster))

    usable = [endpoint for endpoint in endpoints if endpoint.ready or (endpoint.serving and endpoint.terminating)]
    local = tuple([endpoint for endpoint in usable if endpoint.local and endpoint.ready])
    terminating = False
    if not local:
        local = tuple([endpoint for endpoint in usable if endpoint.local])
        terminating = bool(local)
    found = bool(usable) or bool(cluster)
    if not port.uses_cluster_endpoints:
        return Categories((), local, local, found)
    if not hinted and not terminating:
        # `cluster` has every ready endpoint and `local` only ready ones.
        return Categories(cluster, local, cluster, found)
    union = {str(endpoint): endpoint for endpoint in (*cluster, *local)}
    return Categories(cluster, local, tuple([union[text] for text in sorted(union)]), found)


def _cluster(endpoints: Sequence[Endpoint], node: str, zone: str) -> tuple[Endpoints, bool]:
    ready = [endpoint for endpoint in endpoints if endpoint.ready]
    if not ready:
        return tuple([endpoint for endpoint in endpoints if endpoint.serving and endpoint.terminating]), False
    near = _hinted([(endpoint, endpoint.node_hints) for endpoint in ready], node)
    if not near:
        near = _hinted([(endpoint, endpoint.zone_hints) for endpoint in ready], zone)
    return (near, True) if near else (tuple(ready), False)


def _hinted(ready: Iterable[tuple[Endpoint, frozenset[str]]], wanted: str) -> Endpoints:
    """Endpoints hinted for `wanted`; none if any endpoint lacks a hint, because then the hints are incomplete."""
    found = []
    for endpoint, hints in ready:
        if not hints:
            return ()
        if wanted in hints:
            found.append(endpoint)
    return tuple(found)
