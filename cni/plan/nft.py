"""The same rules as one nftables table of our own, for nodes whose proxy speaks nftables. Pure.

The table is replaced whole in one transaction (`delete table` and its new content in one input), so that there is
no moment without it. A verdict of accept in it cannot undo another table's drop: with a FORWARD policy of DROP
set through iptables, `nodewright doctor` must say so; this table has no forward chain.
"""

from __future__ import annotations

from cni.model import HostPort, Network
from cni.plan.masq import MULTICAST, FirewallFacts, collapsed
from cni.plan.names import network_suffix


def table_name(network: str) -> str:
    return "nodewright" + network_suffix(network).lower()


def transaction(facts: FirewallFacts) -> str:
    """Input for `nft -f -` that replaces our table."""
    chains = {
        "localnet": ("type filter hook prerouting priority raw;", _localnet(facts)),
        "prerouting": ("type nat hook prerouting priority dstnat;", ["fib daddr type local jump hostports"]),
        "output": ("type nat hook output priority -100;", ["fib daddr type local jump hostports"]),
        "postrouting": ("type nat hook postrouting priority srcnat;", _postrouting(facts)),
    }
    lines = [*removal_lines(facts.network), f"table ip {table_name(facts.network)} {{"]
    lines += _chain("hostports", "", [_dnat(item) for item in facts.host_ports])
    for name, (hook, rules) in chains.items():
        lines += _chain(name, hook, rules)
    return "\n".join([*lines, "}", ""])


def removal(network: str) -> str:
    return "\n".join([*removal_lines(network), ""])


def removal_lines(network: str) -> list[str]:
    # Added first, because deleting what does not exist fails the whole transaction.
    return [f"add table ip {table_name(network)}", f"delete table ip {table_name(network)}"]


def _chain(name: str, hook: str, rules: list[str]) -> list[str]:
    body = [f"    {line}" for line in ([hook] if hook else []) + rules]
    return [f"  chain {name} {{", *body, "  }"]


def _localnet(facts: FirewallFacts) -> list[str]:
    return [f'iifname "{facts.bridge}" ip daddr 127.0.0.0/8 drop']


def _postrouting(facts: FirewallFacts) -> list[str]:
    rules = []
    for item in facts.host_ports:
        port = f"{item.mapping.protocol} dport {item.mapping.container_port}"
        to = f"ip daddr {item.address} {port} ct status dnat masquerade"
        rules += [f"ip saddr {item.address} {to}", f"ip saddr 127.0.0.0/8 {to}"]
        if not facts.bridge_filtered:
            rules += [f"ip saddr {cidr} {to}" for cidr in facts.pod_cidrs if item.address in cidr]
    inside = ", ".join(_elements([*facts.pod_cidrs, *facts.non_masquerade, MULTICAST]))
    if facts.masquerade:
        for source in _elements(facts.pod_cidrs):
            rules += [f"ip saddr {source} ip daddr {{ {inside} }} return", f"ip saddr {source} masquerade fully-random"]
    return list(dict.fromkeys(rules))


def _dnat(item: HostPort) -> str:
    where = f"ip daddr {item.mapping.host_ip} " if item.mapping.host_ip else ""
    port = f"{item.mapping.protocol} dport {item.mapping.host_port}"
    return f"{where}{port} dnat to {item.address}:{item.mapping.container_port}"


def _elements(networks: list[Network] | tuple[Network, ...]) -> list[str]:
    return [str(item) for item in collapsed(networks)]
