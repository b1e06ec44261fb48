"""How this machine asks for addresses of Services as a client from outside of the nodes' network. Pure.

Upstream's tests of externalTrafficPolicy Local take every address of the /16 around a node for a node's, and this
machine's address on the nodes' link is in it. So for the pool's addresses, and for no others, it uses one that only the
cluster's link has: it goes with the link.
"""

from __future__ import annotations

from ipaddress import IPv4Address, summarize_address_range

from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.load_balancer import pool

CLIENT = "198.18.0.1"  # of the networks for measurements between devices (RFC 2544), which nobody routes

Argv = tuple[str, ...]


def commands(cluster: Cluster) -> tuple[list[Argv], list[Argv]]:
    """What makes it so, and what ends it. Nothing where nodes have no way back, or there are no addresses."""
    options = cluster.options
    if not options.gives_addresses or not options.uplink:
        return [], []
    link = cluster.host_link
    own = ("ip", "address", "replace", f"{CLIENT}/32", "dev", link)
    ways = [
        str(network)
        for one in pool(cluster).ranges
        if isinstance(one.first, IPv4Address) and isinstance(one.last, IPv4Address)
        for network in summarize_address_range(one.first, one.last)
    ]
    made = [own, *[("ip", "route", "replace", way, "dev", link, "src", CLIENT) for way in ways]]
    ended = [("ip", "route", "delete", way, "dev", link) for way in ways]
    return made, [*ended, ("ip", "address", "delete", f"{CLIENT}/32", "dev", link)]
