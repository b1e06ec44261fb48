"""KUBE-FIREWALL: what keeps the node's loopback closed while route_localnet is 1 (CVE-2020-8558). Pure.

The kubelet and the service proxy both write it, and each leaves alone what the other wrote: upstream's
pkg/kubelet/kubelet_network_linux.go and pkg/proxy/iptables/proxier.go have the same rule, word for word.
"""

from __future__ import annotations

from nodelib.firewall.objects import Jump, Rule, comment, jump, rule

CHAIN = "KUBE-FIREWALL"

# https://issues.k8s.io/90259: route_localnet=1 lets other hosts reach the loopback addresses.
DROP_MARTIANS: Rule = rule(
    comment("block incoming localnet connections"),
    ("-d", "127.0.0.0/8", "!", "-s", "127.0.0.0/8"),
    ("-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT"),
    jump("DROP"),
)
JUMPS: tuple[Jump, ...] = tuple([Jump(chain, rule(jump(CHAIN))) for chain in ("INPUT", "OUTPUT")])
