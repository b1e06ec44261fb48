"""Which addresses are those of the cluster's pods. Pure.

Whoever may write one Service must not get what is sent to the pods of others: an address of a pod is nobody's external
IP. Rules for one would lead what other pods and kubelets send to that pod to the Service's endpoints, on every node.
Upstream writes them (CVE-2020-8554). Not where the node is in such a range itself: there clusterCIDR is a flat network
of pods, nodes and load balancers.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address, ip_network


class PodRanges:
    """`cidrs`: the ranges of the cluster's pods, of both families (clusterCIDR); without any, nothing is known."""

    def __init__(self, cidrs: Iterable[str] = ()) -> None:
        self.cidrs = [one for one in map(ip_network, cidrs) if one.prefixlen]  # not everything
        self._ranges = {
            version: [(int(one.netmask), int(one.network_address)) for one in self.cidrs if one.version == version]
            for version in (4, 6)
        }

    def without(self, node: Iterable[str]) -> PodRanges:
        """Those that have none of these addresses of a node."""
        mine = [ip_address(one) for one in node]
        return PodRanges(str(one) for one in self.cidrs if not any(ip in one for ip in mine))

    def has(self, address: str) -> bool:
        """`address`: in canonical text. A Service may have 80,000 of them, and the module ipaddress is slow."""
        ranges = self._ranges[6 if ":" in address else 4]
        if not ranges:
            return False
        number = int(IPv6Address(address)) if ":" in address else int.from_bytes(map(int, address.split(".")), "big")
        return any(number & mask == network for mask, network in ranges)
