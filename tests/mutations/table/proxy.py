"""The service proxy: who serves a packet, and who may send it."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/proxy",)
_TOPOLOGY, _SERVICES = "proxy/plan/topology.py", "proxy/plan/services.py"
_IPTABLES, _NFTABLES = "proxy/plan/iptables/ports.py", "proxy/plan/nftables/ports.py"

TABLE = (
    Mutation(
        "affinity-iptables", "sessionAffinity ClientIP, iptables",
        _IPTABLES, "    if port.affinity_seconds:\n        seconds", "    if False:\n        seconds", _TESTS,
    ),
    Mutation(
        "affinity-nftables", "sessionAffinity ClientIP, nftables",
        _NFTABLES, 'return f"sticky-{name}" if self.port.affinity_seconds else name', "return name", _TESTS,
    ),
    Mutation(
        "affinity-timeout", "sessionAffinityConfig.clientIP.timeoutSeconds",
        _SERVICES, 'seconds = client.get("timeoutSeconds")', "seconds = None", _TESTS,
    ),
    Mutation(
        "affinity-stale", "a client whose endpoint is gone gets another one, nftables",
        "proxy/plan/nftables/affinity.py", "if frontends is None if known is None else element_data(raw) not in known:",
        "if False:",
        (*_TESTS, "netns/test_proxy_packets.py"),
    ),
    Mutation(
        "external-local", "externalTrafficPolicy Local",
        _SERVICES, 'local = external and spec.get("externalTrafficPolicy") == "Local"', "local = False", _TESTS,
    ),
    Mutation(
        "internal-local", "internalTrafficPolicy Local",
        _SERVICES, 'spec.get("internalTrafficPolicy") == "Local"', "False", _TESTS,
    ),
    Mutation(
        "no-local-endpoint-drops", "policy Local without an endpoint here drops, it does not refuse",
        _IPTABLES, 'jump("DROP" if decided.found.any else "REJECT")', 'jump("REJECT")', _TESTS,
    ),
    Mutation(
        "no-endpoint-refuses", "a Service without endpoints refuses, nftables",
        _NFTABLES, '"" if decided.found.any else "reject-chain"', '""', _TESTS,
    ),
    Mutation(
        "distribution-zone", "trafficDistribution PreferSameZone",
        _TOPOLOGY, "_hinted([(endpoint, endpoint.zone_hints) for endpoint in ready], zone)", "()", _TESTS,
    ),
    Mutation(
        "distribution-node", "trafficDistribution PreferSameNode",
        _TOPOLOGY, "_hinted([(endpoint, endpoint.node_hints) for endpoint in ready], node)", "()", _TESTS,
    ),
    Mutation(
        "hints-incomplete", "hints are ignored while an endpoint has none",
        _TOPOLOGY, "        if not hints:\n            return ()", "        if not hints:\n            continue",
        _TESTS,
    ),
    Mutation(
        "terminating-cluster", "terminating endpoints serve while there is no ready one",
        _TOPOLOGY, "for endpoint in endpoints if endpoint.serving and endpoint.terminating]), False",
        "for endpoint in ()]), False", _TESTS,
    ),
    Mutation(
        "terminating-local", "the same with policy Local",
        _TOPOLOGY, "local = tuple([endpoint for endpoint in usable if endpoint.local])\n        terminating",
        "terminating", _TESTS,
    ),
    Mutation(
        "health-check-port", "healthCheckNodePort",
        _SERVICES, 'health = spec.get("healthCheckNodePort") or 0', "health = 0",
        (*_TESTS, "netns/test_proxy_daemon.py"),
    ),
    Mutation(
        "health-check-count", "the health check counts ready endpoints of this node only",
        "proxy/plan/service_health.py", "if endpoint.local and endpoint.ready:", "if True:", _TESTS,
    ),
    Mutation(
        "hairpin-iptables", "a pod that reaches itself by a Service is masqueraded, iptables",
        _IPTABLES, "return Chain(name, (hairpin, dnat))", "return Chain(name, (dnat,))", _TESTS,
    ),
    Mutation(
        "hairpin-nftables", "a pod that reaches itself by a Service is masqueraded, nftables",
        _NFTABLES, "        if endpoint.local:\n", "        if False:\n", _TESTS,
    ),
    Mutation(
        "node-port-addresses", "nodePortAddresses",
        "proxy/plan/node_port_addresses.py", "if address in network and allowed:", "if allowed:", _TESTS,
    ),
    Mutation(
        "node-port-primary", "nodePortAddresses: primary",
        "proxy/plan/node_port_addresses.py", 'if item == "primary":', "if False:", _TESTS,
    ),
    Mutation(
        "conntrack-cleanup", "UDP flows to endpoints that are gone are deleted",
        "proxy/plan/conntrack.py", "if answering not in (one or ()) and answering not in (two or ()):",
        "if False:", _TESTS,
    ),
    Mutation(
        "conntrack-cleanup-called", "they are deleted after a sync that changes a UDP port",
        "proxy/proxier.py", "udp = (changes.udp or full) and", "udp = False and", _TESTS,
    ),
    Mutation(
        "source-ranges-iptables", "loadBalancerSourceRanges, iptables",
        _IPTABLES, "firewalled=found.any and", "firewalled=False and", _TESTS,
    ),
    Mutation(
        "source-ranges-nftables", "loadBalancerSourceRanges, nftables",
        _NFTABLES, "if not (decided.found.any and port.source_ranges):", "if True:", _TESTS,
    ),
    Mutation(
        "ip-mode", "ipMode Proxy of a load balancer's address",
        _SERVICES, 'and entry.get("ipMode", "VIP") in (None, "VIP")]', "]", _TESTS,
    ),
    Mutation(
        "external-ips", "externalIPs, nftables",
        _NFTABLES, "    for address in port.external_ips:\n", "    for address in ():\n", _TESTS,
    ),
    Mutation(
        "masquerade-outside", "traffic to a cluster IP from outside the cluster is masqueraded",
        _IPTABLES, "    if not ctx.masquerade_all and not ctx.detector:", "    if True:", _TESTS,
    ),
    Mutation(
        "short-circuit", "policy Local does not apply to traffic of pods",
        _IPTABLES, "        if ctx.detector:\n", "        if False:\n", _TESTS,
    ),
    Mutation(
        "service-cidr-drop", "an address of the Service range that is nobody's is dropped, nftables",
        "proxy/plan/nftables/layout.py", "for cidr in ctx.service_cidrs])", "for cidr in ()])", _TESTS,
    ),
    Mutation(
        "conntrack-invalid", "packets that conntrack finds invalid are dropped",
        "proxy/plan/iptables/fixed.py", "    if not ctx.tcp_liberal:", "    if False:", _TESTS,
    ),
    Mutation(
        "localhost-node-ports", "iptables.localhostNodePorts: false",
        "proxy/plan/iptables/fixed.py", "elif not ctx.localhost_node_ports:", "elif False:", _TESTS,
    ),
    Mutation(
        "node-eligible", "/healthz fails while the node is about to be deleted",
        "proxy/health.py", "return node.exists and not node.deleting and not node.to_be_deleted", "return True", _TESTS,
    ),
    Mutation(
        "healthz-timeout", "/healthz fails when a change waits for too long",
        "proxy/health.py", "return since is None or now - since < self.timeout", "return True", _TESTS,
    ),
    Mutation(
        "rules-repaired", "rules that somebody else changed are written again",
        "proxy/proxier.py", "        if found:\n            more", "        if False:\n            more", _TESTS,
    ),
    Mutation(
        "duplicate-endpoint", "of two entries of an address, the one that is not terminating counts",
        "proxy/plan/slices.py", "if text not in known or not endpoint.terminating:", "if True:", _TESTS,
    ),
)  # fmt: skip
