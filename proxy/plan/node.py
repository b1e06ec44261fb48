"""What the rules take from the Node object (upstream pkg/proxy/node.go). Pure."""

from __future__ import annotations

from dataclasses import replace

from nodelib.json_values import Json, object_or_empty, objects_in
from proxy.model import NodeFacts
from proxy.plan.addresses import family_of, parse_cidr, parse_ip
from proxy.plan.context import Context, LocalDetector, by_cidr

ZONE_LABEL = "topology.kubernetes.io/zone"
TO_BE_DELETED = "ToBeDeletedByClusterAutoscaler"


def parse_node(obj: Json | None, name: str) -> NodeFacts:
    """The facts of the Node `name`; `obj` None: it does not exist (yet)."""
    if obj is None:
        return NodeFacts(name)
    meta, spec, status = (object_or_empty(obj.get(key)) for key in ("metadata", "spec", "status"))
    labels = object_or_empty(meta.get("labels"))
    given = spec.get("podCIDRs")
    cidrs = given if isinstance(given, list) and given else [spec.get("podCIDR")]
    return NodeFacts(
        name,
        zone=str(labels.get(ZONE_LABEL) or ""),
        ips=_addresses(status.get("addresses")),
        pod_cidrs=tuple([str(network) for network in map(parse_cidr, cidrs) if network is not None]),
        exists=True,
        deleting=bool(meta.get("deletionTimestamp")),
        to_be_deleted=any(taint.get("key") == TO_BE_DELETED for taint in objects_in(spec.get("taints"))),
    )


def with_node(ctx: Context, node: NodeFacts, *, detect_node_cidr: bool) -> Context:
    """`ctx` with the node's zone and address. With `detect_node_cidr` local traffic comes from its pod CIDR."""
    ips = [address for address in node.ips if family_of(address) is ctx.family]
    fresh = replace(ctx, zone=node.zone, node_ip=ips[0] if ips else ctx.node_ip)
    if detect_node_cidr:
        # With the pod CIDR 0.0.0.0/0 everybody would be a pod, and nothing from outside be masqueraded.
        cidrs = [cidr for cidr in node.pod_cidrs if family_of(cidr) is ctx.family and not cidr.endswith("/0")]
        fresh = replace(fresh, detector=by_cidr(cidrs[0]) if cidrs else LocalDetector())
    return fresh


def _addresses(given: object) -> tuple[str, ...]:
    """Internal addresses before external ones, as in upstream's GetNodeHostIPs."""
    found: dict[str, None] = {}
    for kind in ("InternalIP", "ExternalIP"):
        for entry in objects_in(given):
            if entry.get("type") == kind:
                address = parse_ip(entry.get("address"))
                if address is not None:
                    found[address] = None
    return tuple(found)
