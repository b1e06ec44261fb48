"""The pod network: addresses, links, hostPorts, bandwidth, routes."""

from __future__ import annotations

from tests.mutations.model import Mutation

_TESTS = ("unit/cni",)
_OPERATIONS = "cni/operations.py"

TABLE = (
    Mutation(
        "host-port-nftables", "hostPorts, nftables",
        "cni/plan/nftables.py", "[_dnat(item) for item in facts.host_ports]", "[]", _TESTS,
    ),
    Mutation(
        "host-port-iptables", "hostPorts, iptables",
        "cni/plan/iptables.py", "tuple(_dnat(item) for item in facts.host_ports)", "()", _TESTS,
    ),
    Mutation(
        "host-port-hairpin", "a pod reaches itself by its hostPort, nftables",
        "cni/plan/nftables.py", 'rules.append(f"{ip} saddr {item.address} {to}")', "pass", _TESTS,
    ),
    Mutation(
        "host-port-address", "hostIP",
        "cni/plan/nftables.py", "if item.mapping.host_ip else", "if False else", _TESTS,
    ),
    Mutation(
        "host-port-conflict", "a hostPort that another pod has is refused",
        "cni/plan/hostports.py", "if not mapping.host_ip or not addresses", "if False and not addresses", _TESTS,
    ),
    Mutation(
        "host-port-udp", "UDP flows of a hostPort that is gone are deleted",
        "cni/plan/hostports.py", "if before or wrong:", "if False:", _TESTS,
    ),
    Mutation(
        "bandwidth", "kubernetes.io/ingress-bandwidth and egress-bandwidth",
        "cni/apply.py", "        shape(plan, node, host)\n", "", (*_TESTS, "netns/test_cni_bandwidth.py"),
    ),
    Mutation(
        "bandwidth-burst", "a burst that is no limit is replaced",
        "cni/plan/bandwidth.py", "if burst == 0 or burst >= _UNSET else burst // 8", "if False else burst // 8", _TESTS,
    ),
    Mutation(
        "bandwidth-check", "CHECK finds a bandwidth limit that is gone",
        _OPERATIONS, "return found + bandwidth.differences(plan, seen.rates)", "return found",
        (*_TESTS, "netns/test_cni_bandwidth.py"),
    ),
    Mutation(
        "mtu", "the MTU of the configuration, or of the bridge",
        "cni/plan/links.py", "mtu=conf.mtu or bridge.mtu or DEFAULT_MTU", "mtu=DEFAULT_MTU", _TESTS,
    ),
    Mutation(
        "mtu-uplink", "the bridge has the MTU of the node's uplink",
        "cni/plan/node.py", "            return by_index[index].mtu", "            return DEFAULT_MTU", _TESTS,
    ),
    Mutation(
        "mtu-changed", "the bridge follows a changed MTU",
        "cni/plan/node.py", "set_mtu=plan.mtu if link.mtu != plan.mtu else 0", "set_mtu=0", _TESTS,
    ),
    Mutation(
        "spoofing", "a pod cannot send with another hardware address",
        "cni/edge/netlink.py", '            port += [["IFLA_BRPORT_LEARNING", 0], ["IFLA_BRPORT_LOCKED", 1]]\n', "",
        ("netns/test_cni_spoofing.py",),
    ),
    Mutation(
        "hairpin-mode", "a pod reaches itself through the bridge",
        "cni/plan/links.py", "hairpin=conf.hairpin", "hairpin=False",
        _TESTS,
    ),
    Mutation(
        "gc", "GC releases what is not valid any more",
        _OPERATIONS, "if attachment.key in valid:", "if True:", _TESTS,
    ),
    Mutation(
        "orphans", "addresses of sandboxes that are gone are released",
        "cni/plan/orphans.py", "return [item for item in gone if monotonic", "return [item for item in () if monotonic",
        _TESTS,
    ),
    Mutation(
        "orphans-grace", "an ADD that is under way does not look like an orphan",
        "cni/plan/orphans.py", "if monotonic - unlisted[item.key] >= grace]", "]", _TESTS,
    ),
    Mutation(
        "check", "CHECK fails when something is different",
        _OPERATIONS, "        if wrong:\n", "        if False:\n", (*_TESTS, "netns/test_cni_plugin.py"),
    ),
    Mutation(
        "add-undo", "an ADD that fails gives its address back",
        _OPERATIONS, "undo.callback(store.release, args.key)", "pass", _TESTS,
    ),
    Mutation(
        "static-address", "CNI_ARGS IP=",
        _OPERATIONS, "wanted = _wanted(args)", "wanted = dict[int, Address]()", _TESTS,
    ),
    Mutation(
        "round-robin", "a released address is not given to the next pod",
        "cni/plan/ipam.py", "for address in _after(ranges, last):", "for address in _after(ranges, None):", _TESTS,
    ),
    Mutation(
        "masquerade-iptables", "pods reach the outside with the node's address, iptables",
        "cni/plan/iptables.py", "    if not facts.masquerade:\n", "    if True:\n", _TESTS,
    ),
    Mutation(
        "masquerade-nftables", "pods reach the outside with the node's address, nftables",
        "cni/plan/nftables.py", "if facts.masquerade and facts.pod_cidrs:", "if False:", _TESTS,
    ),
    Mutation(
        "localnet-guard", "a pod cannot reach the node's 127.0.0.0/8, nftables",
        "cni/plan/nftables.py", "    if facts.version == 4:\n        guard", "    if False:\n        guard", _TESTS,
    ),
    Mutation(
        "routes-removed", "the route to a node that is gone is removed",
        "cni/plan/routes.py", "remove=tuple(route for route in ours if", "remove=tuple(route for route in () if",
        _TESTS,
    ),
    Mutation(
        "overlay", "nodes on other links are reached through VXLAN",
        "cni/plan/routes.py", 'if mode != "routes" and overlay', "if False and overlay", _TESTS,
    ),
    Mutation(
        "foreign-pod-cidr", "a podCIDR that overlaps the node's own networks is not believed",
        "cni/plan/routes.py", "refused = pod_cidrs.refusal(cidr, reserved) or", "refused =", _TESTS,
    ),
    Mutation(
        "neighbour-pod", "a node and its pods find each other by permanent entries",
        "cni/edge/netlink.py", "for one in plan.gateways]", "for one in ()]", ("netns/test_cni_network.py",),
    ),
    Mutation(
        "neighbour-node", "the entries of pods come back",
        "cni/node_links.py", "for missing in wanted - present:", "for missing in ():", _TESTS,
    ),
    Mutation(
        "connection-share", "who holds more than its part of the node's connections is bounded",
        "cni/plan/shares.py", "if one.total > parts.get(one.holder, one.total)", "if False", _TESTS,
    ),
    Mutation(
        "connection-namespace", "all pods of a namespace have one part of the connections",
        "cni/plan/shares.py", '.partition("/")[0]', "", _TESTS,
    ),
    Mutation(
        "connection-cut", "connections beyond the part are deleted",
        "cni/connection_guard.py", "        if shared.cuts:\n", "        if False:\n", _TESTS,
    ),
    Mutation(
        "connection-living", "living connections are deleted only as far as there is no room otherwise",
        "cni/plan/shares.py", "int(limit * _TOLERATED)", "int(limit * _WANTED)", _TESTS,
    ),
    Mutation(
        "connection-bounds", "new connections of who is bounded are refused",
        "cni/plan/connection_rules.py", '"low-rates", BOUNDED, BOUNDED)', '"low-rates", EACH, EACH)',
        ("netns/test_connection_guard.py",),
    ),
    Mutation(
        "connection-received", "a pod that is flooded from outside is not punished",
        "cni/edge/connection_table.py", "holders, address = self.received, found.answerer",
        "holders, address = self.sent, found.answerer", ("netns/test_connection_guard.py",),
    ),
)  # fmt: skip
