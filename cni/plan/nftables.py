"""The same rules as one nftables table of our own, for nodes whose proxy uses nftables. Pure.

The table is replaced as a whole in one transaction (`delete table` and its new content in one input), so it never
disappears. An accept verdict in it cannot undo another table's drop, so it has no forward chain: `nodewright doctor`
reports a FORWARD policy of DROP that was set through iptables.
"""

from __future__ import annotations

from cni.model import FirewallFacts, HostPort
from cni.plan.hostports import target
from cni.plan.iptables import LOCAL, collapsed
from cni.plan.names import network_suffix

# A service proxy translates at -100 (dstnat). Of chains of the same priority the kernel asks the newest one first, so
# that a hostPort would take the NodePort of that number from its Service.
_AFTER_SERVICES = -99
_NAMES = {4: "ip", 6: "ip6"}  # table family, and protocol in a rule


def table_name(network: str) -> str:
    return "nodewright" + network_suffix(network).lower()


def transaction(facts: FirewallFacts) -> str:
    """Input for `nft -f -` that replaces our table of one family."""
    prerouting = ["fib daddr type local jump hostports"]
    chains = {
        "prerouting": (f"type nat hook prerouting priority {_AFTER_SERVICES};", prerouting),
        "output": (f"type nat hook output priority {_AFTER_SERVICES};", prerouting),
        "postrouting": ("type nat hook postrouting priority srcnat;", _postrouting(facts)),
    }
    if facts.version == 4:
        guard = [f'iifname "{facts.bridge}" ip daddr 127.0.0.0/8 drop']
        chains = {"localnet": ("type filter hook prerouting priority raw;", guard), **chains}
    chains |= _overlay(facts)
    lines = [*_replaced(facts.network, facts.version), f"table {_NAMES[facts.version]} {table_name(facts.network)} {{"]
    lines += _chain("hostports", "", [_dnat(item) for item in facts.host_ports])
    for name, (hook, rules) in chains.items():
        lines += _chain(name, hook, rules)
    return "\n".join([*lines, "}", ""])


def removal(network: str) -> str:
    """Input for `nft -f -` that removes our tables of both families."""
    return "\n".join([*_replaced(network, 4), *_replaced(network, 6), ""])


def _replaced(network: str, version: int) -> list[str]:
    # Added first, because deleting a missing table fails the whole transaction.
    return [f"{verb} table {_NAMES[version]} {table_name(network)}" for verb in ("add", "delete")]


def _chain(name: str, hook: str, rules: list[str]) -> list[str]:
    body = [f"    {line}" for line in ([hook] if hook else []) + rules]
    return [f"  chain {name} {{", *body, "  }"]


def _postrouting(facts: FirewallFacts) -> list[str]:
    ip = _NAMES[facts.version]
    rules = []
    for item in facts.host_ports:
        port = f"{item.mapping.protocol} dport {item.mapping.container_port}"
        to = f"{ip} daddr {item.address} {port} ct status dnat masquerade"
        rules.append(f"{ip} saddr {item.address} {to}")
        if facts.version == 4:
            rules.append(f"{ip} saddr 127.0.0.0/8 {to}")
        if not facts.bridge_filtered:
            rules += [f"{ip} saddr {cidr} {to}" for cidr in facts.pod_cidrs if item.address in cidr]
    if facts.masquerade and facts.pod_cidrs:
        inside = ", ".join(map(str, collapsed([*facts.pod_cidrs, *facts.non_masquerade, *LOCAL[facts.version]])))
        for source in collapsed(facts.pod_cidrs):
            rules.append(f"{ip} saddr {source} {ip} daddr {{ {inside} }} return")
            rules.append(f"{ip} saddr {source} masquerade fully-random")
    return list(dict.fromkeys(rules))


def _overlay(facts: FirewallFacts) -> dict[str, tuple[str, list[str]]]:
    """See plan/iptables.py."""
    guard, ip = facts.guard, _NAMES[facts.version]
    if guard is None:
        return {}
    pods, port = ", ".join(map(str, guard.pods)), f"udp dport {guard.port}"
    into = [f'{port} iifname {{ "{facts.bridge}", "{guard.link}" }} drop', f"{port} {ip} daddr != {guard.local} drop"]
    into += [f"{port} {ip} saddr {{ {pods} }} drop"] if pods else []
    elsewhere = f"{ip} daddr != {{ {pods} }} " if pods else ""
    return {
        "overlay-in": ("type filter hook input priority filter;", into),
        "overlay-on": (
            "type filter hook forward priority filter;",
            [f'{port} iifname "{facts.bridge}" {elsewhere}drop'],
        ),
    }


def _dnat(item: HostPort) -> str:
    where = f"{_NAMES[item.address.version]} daddr {item.mapping.host_ip} " if item.mapping.host_ip else ""
    return f"{where}{item.mapping.protocol} dport {item.mapping.host_port} dnat to {target(item)}"
