"""The kubelet's own chains in iptables: what is missing of them. Pure.

Follows upstream pkg/kubelet/kubelet_network_linux.go of 1.37: KUBE-IPTABLES-HINT shows other programs which variant of
iptables the node uses, KUBE-FIREWALL drops packets from outside to 127.0.0.0/8, and KUBE-KUBELET-CANARY vanishes with
everything else when somebody flushes the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agent.node.model import WatchedChains
from nodelib.firewall import localnet
from nodelib.firewall.canonical import missing_jumps
from nodelib.firewall.objects import BUILT_IN, Chain, Change, Family, Jump, TableChange, TableContent

HINT = "KUBE-IPTABLES-HINT"
CANARY = "KUBE-KUBELET-CANARY"
TABLES = ("mangle", "nat", "filter")
READ = (*BUILT_IN["filter"], localnet.CHAIN)  # chains of the table filter whose rules are compared

_CHAINS = {"mangle": (HINT, CANARY), "nat": (CANARY,), "filter": (CANARY,)}
# Appended: the proxy's rule, or one that somebody added to the chain, stays.
_GUARD = (Jump(localnet.CHAIN, localnet.DROP_MARTIANS, insert=False), *localnet.JUMPS)


def watched_chains(families: Iterable[Family]) -> tuple[WatchedChains, ...]:
    """What missing() depends on: as long as it looks the same, the same is missing."""
    return tuple(
        WatchedChains(family, table, _CHAINS[table], READ if table == "filter" and family is Family.IPV4 else ())
        for family in families
        for table in TABLES
    )


def missing(present: Mapping[str, frozenset[str]], filters: TableContent, family: Family) -> Change:
    """The change that makes what is missing, empty if nothing is; no rule of anybody is removed.

    `present`: those of watched_chains() that each table has; `filters`: the table filter with the rules of READ. Only
    IPv4 has KUBE-FIREWALL: the kernel routes no packet from outside to ::1.
    """
    change = []
    for table in TABLES:
        wanted = [Chain(name) for name in _CHAINS[table] if name not in present[table]]
        leads: tuple[Jump, ...] = ()
        if table == "filter" and family is Family.IPV4:
            wanted += [] if filters.has(localnet.CHAIN) else [Chain(localnet.CHAIN)]
            leads = missing_jumps(filters, _GUARD, family)
        change.append(TableChange(table, tuple(wanted), add_jumps=leads))
    return tuple([one for one in change if one])
