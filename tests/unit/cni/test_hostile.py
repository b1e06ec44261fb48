"""What a hostile pod, Node or runtime may write, and what must not come of it: rules, routes, loops."""

from __future__ import annotations

import json
import re
import time
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.node.model import NodePlace
from cli.node_agent import translated
from cni import dispatch
from cni.daemon import Published
from cni.install import load_published
from cni.model import Attachment, AttachmentKey, FirewallFacts, HostPort, Neighbour, NodeFacts, PortMapping, RouteFacts
from cni.node_links import ensure_bridge
from cni.operations import Operations
from cni.plan import hostports, iptables, nftables, routes
from cni.plan.node import bridge
from cni.spec.arguments import Args
from cni.spec.configuration import NetConf, address_range, parse_conf
from cni.spec.errors import INVALID_CONFIG, CNIError
from nodelib.addresses import hardware_address
from nodelib.json_values import Json
from nodelib.netlink.flows import UdpFlow
from proxy.plan.nftables.layout import HOOKS
from tests.cpu_time import least
from tests.fakes.fake_netlink import FakeKernel, FakePorts
from tests.fakes.fake_store import FakeStore

# Python's ipaddress takes all of it for the zone of an IPv6 address.
ZONE = "fe80::1%x drop\n  }\n}\nflush ruleset\ntable ip6 y {\n  chain z {\n"


def conf(**changes: Any) -> NetConf:
    raw = {"cniVersion": "1.1.0", "name": "net", "type": "nodewright"} | changes
    return parse_conf(json.dumps(raw).encode(), "ADD")


def mapped(**port: Any) -> Json:
    return {"runtimeConfig": {"portMappings": [{"hostPort": 80, "containerPort": 80} | port]}}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param(mapped(hostIP=ZONE), "hostIP", id="host address with a zone"),
        pytest.param(mapped(hostIP="fe80::1%eth0"), "hostIP", id="host address with a zone that exists"),
        pytest.param(mapped(hostIP="127.0.0.1 drop"), "hostIP", id="host address with a second word"),
        pytest.param(mapped(hostPort=70000), "hostPort", id="host port out of range"),
        pytest.param(mapped(containerPort=0), "containerPort", id="no container port"),
        pytest.param({"ipam": {"subnet": "fd00::%x/64"}}, "subnet", id="range with a zone"),
        pytest.param({"nonMasqueradeCIDRs": ["fd00::%x/64"]}, "nonMasqueradeCIDRs", id="network with a zone"),
        pytest.param({"bridge": 'a"drop'}, "bridge", id="bridge with a quote"),
        pytest.param({"bridge": "../../x"}, "bridge", id="bridge like a path"),
        pytest.param({"runtimeConfig": {"bandwidth": {"ingressRate": 1 << 63}}}, "ingressrate", id="rate out of range"),
    ],
)
def test_what_would_become_a_rule_is_refused(changes: Json, named: str) -> None:
    with pytest.raises(CNIError) as caught:
        conf(**changes)
    assert caught.value.code == 7
    assert named in str(caught.value)


def test_a_record_of_an_older_version_brings_no_rule_with_it() -> None:
    """Records outlive the process that wrote them: one from before zones were refused may still be there."""
    record = Attachment(AttachmentKey("c1", "eth0"), (ip_address("fd44::5"),), (PortMapping(80, 80, "tcp", ZONE),))
    ports = hostports.host_ports([record], 6)
    facts = FirewallFacts("nodewright", "nw0", (), version=6, host_ports=ports)
    assert "flush ruleset" not in nftables.transaction(facts)


@pytest.mark.parametrize(
    ("ips", "cidrs", "known"),
    [
        pytest.param(["10.0.0.1", "fd00::1"], ["10.244.1.0/24"], ["10.0.0.1", "fd00::1", "10.244.1.0/24"], id="sound"),
        pytest.param([ZONE, "10.0.0.1"], [], ["10.0.0.1"], id="rule text in a zone"),
        pytest.param(["junk", "", "10.0.0.1"], ["junk", "10.244.1.0/24"], ["10.0.0.1", "10.244.1.0/24"], id="junk"),
        pytest.param(["127.0.0.1", "::1", "0.0.0.0", "::"], [], [], id="loopback and unspecified"),
        pytest.param(["224.0.0.1", "255.255.255.255", "ff02::1"], [], [], id="to everybody"),
        pytest.param(["169.254.169.254", "fe80::1", "::ffff:127.0.0.1"], [], [], id="link-local and mapped"),
        pytest.param([None, 5], [None, 5], [], id="no text"),  # type: ignore[list-item]
    ],
)
def test_what_is_believed_of_another_nodes_addresses(ips: list[str], cidrs: list[str], known: list[str]) -> None:
    """The API server does not check a Node's addresses, and each node writes its own."""
    facts = translated(NodePlace("evil", tuple(ips), tuple(cidrs)))
    assert [*map(str, facts.internal_ips), *map(str, facts.pod_cidrs)] == known


def test_a_node_with_very_many_addresses_makes_no_very_many_rules() -> None:
    place = NodePlace("evil", tuple(f"10.{n >> 8}.{n & 255}.1" for n in range(40_000)), ())
    assert len(translated(place).internal_ips) <= 16


def test_the_addresses_of_many_nodes_are_linear_work() -> None:
    """Each was compared with all, on the agent's loop, at each write of the rules: 6 s for 4,000 of them."""
    hosts = [ip_network(f"203.{n >> 8}.{n & 255}.1") for n in range(20_000)]
    inside = [ip_network(one) for one in ("203.0.0.0/16", "203.0.7.0/24", "203.1.0.0/30", "10.0.0.0/8", "10.0.0.0/8")]
    began = time.process_time()
    found = iptables.collapsed([*hosts, *inside])
    assert time.process_time() - began < 5
    assert found[:3] == [inside[3], inside[0], inside[2]] and found[3:] == hosts[257:]


def node(name: str, ip: str, *cidrs: str) -> NodeFacts:
    return NodeFacts(name, (ip_address(ip),), tuple(map(ip_network, cidrs)))


ME = node("me", "10.89.0.11", "10.244.0.0/24")
GOOD = node("good", "10.89.0.12", "10.244.1.0/24")
LINK = [ip_interface("10.89.0.11/24"), ip_interface("fd89::11/64")]


@pytest.mark.parametrize(
    ("cidr", "reason"),
    [
        pytest.param("0.0.0.0/0", "special", id="default route"),
        pytest.param("::/0", "special", id="default route of IPv6"),
        pytest.param("0.0.0.0/1", "special", id="half of the world"),
        pytest.param("127.0.0.0/8", "special", id="loopback"),
        pytest.param("169.254.169.0/24", "special", id="metadata service"),
        pytest.param("224.0.0.0/8", "special", id="multicast"),
        pytest.param("10.89.0.0/24", "own address 10.89.0.11", id="the nodes' network"),
        pytest.param("10.0.0.0/8", "own address 10.89.0.11", id="everything private"),
        pytest.param("10.89.0.12/32", "outside", id="another node's address"),
        pytest.param("8.8.8.0/24", "outside", id="somebody else's network"),
        pytest.param("10.244.0.0/23", "overlaps this node's own", id="this node's pods and others"),
        pytest.param("10.244.0.128/25", "overlaps this node's own", id="half of this node's pods"),
        pytest.param("10.244.1.0/25", "overlaps", id="half of another node's pods"),
        pytest.param("10.244.1.64/32", "overlaps", id="one pod of another node"),
    ],
)
@pytest.mark.parametrize("name", ["a-evil", "z-evil"], ids=["first by name", "last by name"])
def test_no_node_takes_over_a_route(name: str, cidr: str, reason: str) -> None:
    """A node may create its own Node object with any podCIDR. That of a node that is served already stays its own."""
    served = RouteFacts(ip_network("10.244.1.0/24"), ip_address("10.89.0.12"), 2, routes.PROTOCOL)
    ranges = (ip_network("10.244.0.0/16"), ip_network("fd44::/48"))
    evil = node(name, "10.89.0.66", cidr)
    plan = routes.plan(ME, [ME, GOOD, evil], LINK, [served], ME.pod_cidrs, cluster_cidrs=ranges)
    assert (plan.add, plan.remove) == ((), ())
    assert reason in plan.skipped[0]
    assert f"of node {name}" in plan.skipped[0]


@pytest.mark.parametrize(
    ("cidr", "reason"),
    [
        pytest.param("0.0.0.0/0", "special", id="default route"),
        pytest.param("10.89.0.0/24", "10.89.0.11", id="the nodes' network"),
        pytest.param("10.0.0.0/8", "10.89.0.11", id="everything private"),
        pytest.param("10.89.0.12/32", "10.89.0.12 of node good", id="another node's address"),
        pytest.param("10.244.1.0/24", "node good's", id="another node's pods"),
    ],
)
def test_without_known_ranges_the_obvious_is_still_refused(cidr: str, reason: str) -> None:
    served = RouteFacts(ip_network("10.244.1.0/24"), ip_address("10.89.0.12"), 2, routes.PROTOCOL)
    plan = routes.plan(ME, [node("a-evil", "10.89.0.66", cidr), ME, GOOD], LINK, [served], ME.pod_cidrs)
    assert (plan.add, plan.remove) == ((), ())
    assert reason in plan.skipped[0]


@pytest.mark.parametrize("name", ["a-evil", "z-evil"], ids=["first by name", "last by name"])
def test_a_range_that_is_served_through_the_overlay_stays_with_its_node(name: str) -> None:
    """In the overlay the next hop follows from the range, whoever has it: the hardware address says who has it now."""
    far, evil = node("good", "198.51.100.1", "10.244.1.0/24"), node(name, "198.51.100.66", "10.244.1.0/24")
    gateway = ip_address("10.244.1.1")
    served = RouteFacts(ip_network("10.244.1.0/24"), gateway, 5, routes.PROTOCOL)
    entry = Neighbour(gateway, hardware_address(far.internal_ips[0]))
    plan = routes.plan(ME, [ME, far, evil], LINK, [served], ME.pod_cidrs, overlay_index=5, neighbours=[entry])
    assert [peer.node for peer in plan.peers] == ["good"]
    assert "is node good's too" in plan.skipped[0]


def test_the_more_exact_of_two_new_claims_is_believed() -> None:
    plan = routes.plan(ME, [node("a-evil", "10.89.0.66", "10.244.0.0/16"), ME, GOOD], LINK, [], [])
    assert [str(item.gateway) for item in plan.add] == ["10.89.0.12"]


NETWORKS = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).flatmap(
    lambda at: st.integers(0, at.max_prefixlen).map(lambda bits: ip_network(f"{at}/{bits}", strict=False))
)


@given(st.lists(st.tuples(st.integers(0, 9), NETWORKS), max_size=8))
def test_whatever_nodes_claim_no_two_routes_overlap_and_none_covers_a_node(claims: list[tuple[int, Any]]) -> None:
    others = [
        NodeFacts(f"n{name}", (ip_address(f"10.89.0.{100 + n}"),), (net,)) for n, (name, net) in enumerate(claims)
    ]
    plan = routes.plan(ME, [ME, *others], LINK, [], ME.pod_cidrs)
    added = [item.destination for item in plan.add]
    for position, one in enumerate(added):
        assert ip_address("10.89.0.11") not in one
        assert not any(one.version == other.version and one.overlaps(other) for other in added[position + 1 :])


def pod(number: int, count: int) -> Attachment:
    ports = tuple([PortMapping(1 + port, 80, "tcp", f"10.0.{number}.1") for port in range(count)])
    return Attachment(AttachmentKey(f"c{number}", "eth0"), (ip_address(f"10.1.{number}.2"),), ports, f"ns/pod{number}")


def test_a_pod_with_ten_thousand_host_ports_holds_up_nobody_for_long() -> None:
    """The store is locked meanwhile: a comparison of each with each took minutes, in which no pod got an address."""
    others, wanted = [pod(number, 10_000) for number in range(5)], pod(9, 10_000)
    began = time.process_time()
    assert hostports.conflicts(wanted.key, wanted.port_mappings, others) == []
    assert time.process_time() - began < 10
    every = [PortMapping(7, 80)]
    assert len(hostports.conflicts(wanted.key, every, others)) == 5


def test_the_pods_of_a_namespace_have_no_endless_number_of_host_ports() -> None:
    """A pod with 25,000: its 75,000 rules took 5 s whenever a hostPort came or went, and slowed each new connection."""
    made, key = [pod(number, 2000) for number in range(2)], AttachmentKey("c7", "eth0")
    few, many = pod(7, 96).port_mappings, pod(7, 97).port_mappings
    assert not hostports.too_many("ns/p", key, few, made)
    assert "97 hostPorts, and 4000 of other pods of namespace ns" in hostports.too_many("ns/p", key, many, made)
    assert not hostports.too_many("other/p", key, many, made)
    assert not hostports.too_many("ns/p", made[0].key, many, made), "those that the pod has itself"
    assert "4097 hostPorts are too many" in hostports.too_many("other/p", key, pod(7, 4097).port_mappings, made)
    assert not hostports.too_many("", key, pod(7, 30_000).port_mappings, made), "podman's"


def test_a_pod_with_too_many_host_ports_gets_no_address() -> None:
    kernel, store = FakeKernel(), FakeStore()
    operations = Operations(kernel.open, lambda _: store, lambda *_: None, lambda: 0.0, FakePorts())
    ports = [{"hostPort": 1 + number, "containerPort": 80} for number in range(4097)]
    ranges = {"ipam": {"subnet": "10.1.0.0/24"}, "runtimeConfig": {"portMappings": ports}}
    network = conf(capabilities={"portMappings": True}, **ranges)
    with kernel.open(None) as links:
        ensure_bridge(links, bridge(network.bridge, [one[0] for one in network.ranges], 1500), ())
    args = Args("ADD", "c1", "eth0", "/netns", {"K8S_POD_NAMESPACE": "ns", "K8S_POD_NAME": "p"})
    with pytest.raises(CNIError, match="4097 hostPorts are too many"):
        operations.add(network, args, 0)
    assert not store.taken()


@pytest.mark.parametrize("length", [63, 253])
def test_the_name_of_a_pod_fits_into_a_comment(length: int) -> None:
    """xt_comment holds 255 bytes, a namespace and a pod's name have 317: no pod would get a host port."""
    item = HostPort(PortMapping(80, 80), ip_address("10.1.0.2"), f"{'n' * 63}/{'p' * length}")
    facts = FirewallFacts("nodewright", "nw0", (), host_ports=(item,))
    words = [
        word
        for chains in iptables.chains(facts).values()
        for chain in chains
        for one in chain.rules
        for word in one.words
    ]
    assert max(map(len, words)) <= 255
    assert any(word.startswith(f"hostPort of {'n' * 63}/pp") for word in words)


@pytest.mark.parametrize("text", ["\N{SUPERSCRIPT TWO}", "9" * 5000, "99999", "-1"])
def test_what_is_no_error_number_is_none(text: str) -> None:
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_IFNAME": "eth0", "CNI_NETNS": "/x"}
    stdin = json.dumps({"cniVersion": "1.1.0", "name": "net", "ipam": {"subnet": "10.0.0.0/24"}}).encode()
    assert dispatch.read(env | {dispatch.NETNS_ERRNO: text}, stdin).netns_error == 0


def test_what_an_older_version_kept_for_the_next_run_brings_no_rule_with_it(tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    kept = {"pod_cidrs": ["10.1.0.0/24"], "non_masquerade": [f"{ZONE}/128", "10.0.0.1/32"]}
    (tmp_path / "net" / ".published").write_text(json.dumps(kept))
    assert load_published(str(tmp_path), "net") == Published((ip_network("10.1.0.0/24"),), (ip_network("10.0.0.1/32"),))


def test_an_address_that_is_asked_for_has_no_zone() -> None:
    """With one it would be in the range and never be taken: two pods would have it."""
    kernel = FakeKernel()
    conf = NetConf("1.1.0", "net", ranges=((address_range({"subnet": "fd44::/64"}),),))
    store = FakeStore()
    with kernel.open(None) as links:
        ensure_bridge(links, bridge("nw0", [address_range({"subnet": "fd44::/64"})], 1500))
    operations = Operations(kernel.open, lambda _: store, lambda *_: None, lambda: 0.0, FakePorts())
    args = Args("ADD", "c1", "eth0", "/netns/c1", {"IP": "fd44::5%x"})
    with pytest.raises(CNIError, match="not an IP address"):
        operations.add(conf, args, kernel.new_namespace())


def test_a_pod_with_thousands_of_ports_and_a_client_with_as_many_flows_are_linear_work() -> None:
    """Each flow was compared with each port: minutes, for 30,000 ports and 100,000 flows hours."""
    items = [HostPort(PortMapping(port, 53, "udp", ""), ip_address("10.0.0.2"), "a/p") for port in range(1, 20_001)]
    flows = [UdpFlow("10.9.0.1", port, "192.0.2.1", port, "192.0.2.1", port) for port in range(1, 20_001)]
    began = time.process_time()
    assert len(hostports.stale_flows(flows, {ip_address("192.0.2.1")}, items, items)) == len(flows)
    assert time.process_time() - began < 5


@pytest.mark.parametrize("piece", ["[],", '{"a":1},', "1,"])
def test_a_plugin_of_the_list_that_prints_without_end(piece: str) -> None:
    """Its result comes with the configuration: 16 MiB took the agent's loop 0.5 to 2.6 s, twice, and up to 430 MB."""
    result = piece * ((16 << 20) // len(piece)) + "1"
    text = f'{{"cniVersion":"1.1.0","name":"net","prevResult":{{"x":[{result}]}}}}'.encode()
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "a", "CNI_IFNAME": "eth0", "CNI_NETNS": "/n"}

    def refused() -> dispatch.Answer:
        with pytest.raises(CNIError) as caught:
            dispatch.read(env, text)
        return dispatch.refusal(caught.value, text)

    took, answer = least(refused)
    assert took < 0.1 and answer.status == 1 and b"plugins before this one" in answer.body


def test_as_many_host_ports_as_a_pod_may_have() -> None:
    ports = [{"HostPort": 60000, "ContainerPort": 60000, "Protocol": "sctp", "HostIP": "fd00:1:2:3:4:5:6:7"}] * 4096
    assert len(conf(runtimeConfig={"portMappings": ports}).port_mappings) == 4096


@pytest.mark.parametrize(
    ("result", "named"),
    [
        pytest.param({"interfaces": 5}, "prevResult.interfaces", id="a number of interfaces"),
        pytest.param({"ips": ["10.0.0.1/24"]}, "prevResult.ips", id="texts as addresses"),
        pytest.param({"routes": {"dst": "0.0.0.0/0"}}, "prevResult.routes", id="one route"),
        pytest.param({"dns": "10.0.0.1"}, "prevResult.dns", id="text as dns"),
    ],
)
@pytest.mark.parametrize("command", ["ADD", "CHECK"])
def test_a_result_that_is_none_is_refused_before_anything_is_made(command: str, result: Json, named: str) -> None:
    """It was found out when the pod had its address and its link already, as a defect of ours."""
    conf = {"cniVersion": "1.0.0", "name": "net", "prevResult": result}
    with pytest.raises(CNIError, match=named) as refused:
        parse_conf(json.dumps(conf).encode(), command)
    assert refused.value.code == INVALID_CONFIG
    assert parse_conf(json.dumps(conf).encode(), "DEL").prev_result is None, "what is made can be taken back"


def test_the_node_port_of_a_service_comes_before_a_host_port_of_that_number() -> None:
    """Of two chains of the same priority the kernel asks the one that was made last, and this table is made anew with
    each hostPort: whoever could create a pod with one got what is sent to others' Services. As with iptables, where
    the proxy's chain is the first.
    """
    port = HostPort(PortMapping(31000, 80), ip_address("10.1.0.2"))
    facts = FirewallFacts("nodewright", "nw0", (ip_network("10.1.0.0/24"),), host_ports=(port,))
    found = dict(re.findall(r"type nat hook (prerouting|output) priority (-?[0-9]+);", nftables.transaction(facts)))
    proxys = {hook: priority for kind, hook, priority in HOOKS.values() if kind == "nat" and hook in found}
    assert len(proxys) == 2 and all(int(found[hook]) > priority for hook, priority in proxys.items())
