"""How much one namespace may have in a mode of the proxy, where that is less than in any. Pure.

iptables writes a chain as a whole: 25 µs for each rule of it, whoever's Service changes, and each new connection of
anybody passes all rules of the chains that all Services share. A chain of a port's own, such as that of an endpoint,
takes it 0.2 ms. In nftables mode rules are elements of maps, of which only those are written that change.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass

from proxy.plan.sticky_shares import MOST_OF_NAMESPACE as MOST_STICKY


@dataclass(frozen=True, slots=True)
class Limits:
    """`sticky`: addresses with session affinity of a namespace; `ports`: its ports; `address_rules`: its addresses
    outside the cluster, each times the ports of its Service, None: they count by endpoints, too; `pairs`: its
    endpoints, each times the ports; `pairs_of_service`: of a Service, which is made and deleted in one sync; `at_once`:
    pairs that change in one sync otherwise."""

    sticky: int = sys.maxsize
    ports: int = sys.maxsize
    address_rules: int | None = None
    pairs: int = sys.maxsize
    pairs_of_service: int = sys.maxsize
    at_once: int = sys.maxsize


NO_LESS = Limits()
# A connection passes the rules of a namespace in half a millisecond, and they are written in one second.
_OF_CHAINS = Limits(ports=20_000, address_rules=10_000, pairs=150_000, pairs_of_service=20_000, at_once=5_000)
OF_MODE: Mapping[str, Limits] = {
    "iptables": _OF_CHAINS,
    "userspace": _OF_CHAINS,
    "nftables": Limits(sticky=MOST_STICKY),
}
