"""Two nodes and an outside, on the real kernel: routes, masquerade, hostPorts, return traffic of Services, uninstall.

Addresses: nodes 10.89.0.11 and .12 on one link; pods 10.244.1.0/24 and 10.244.2.0/24; outside 192.0.2.9,
reached through node1 (192.0.2.1), has no route to any pod.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.cni_world import Namespace, Node, World, wait_for

pytestmark = pytest.mark.netns

NODES = [
    {"name": "node1", "ips": ["10.89.0.11"], "cidrs": ["10.244.1.0/24"]},
    {"name": "node2", "ips": ["10.89.0.12"], "cidrs": ["10.244.2.0/24"]},
]


class Cluster:
    def __init__(self, world: World, firewall: str) -> None:
        self.world = world
        self.one = world.node("node1", "10.244.1.0/24", firewall=firewall)
        self.two = world.node("node2", "10.244.2.0/24", firewall=firewall)
        self.outside = world.namespace()
        world.link(self.one.namespace, "up0", "10.89.0.11/24", self.two.namespace, "up0", "10.89.0.12/24")
        world.link(self.one.namespace, "out0", "192.0.2.1/24", self.outside, "out0", "192.0.2.9/24")
        for node in (self.one, self.two):
            node.config["nodes"] = NODES
            node.start_server()

    def pod(self, node: Node, name: str, **changes: object) -> tuple[Namespace, str]:
        pod = self.world.namespace()
        return pod, node.add(name, pod, **changes)


@pytest.fixture(params=["iptables", "nftables"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    world = World(tmp_path)
    try:
        yield Cluster(world, request.param)
    finally:
        world.close()


def ports(*mappings: tuple[str, int, str], container: int = 80) -> dict[str, object]:
    return {
        "portMappings": [
            {"hostIP": ip, "hostPort": port, "containerPort": container, "protocol": protocol}
            for ip, port, protocol in mappings
        ]
    }


def test_pods_of_two_nodes_see_each_others_addresses(cluster: Cluster) -> None:
    one, ip_one = cluster.pod(cluster.one, "a")
    two, ip_two = cluster.pod(cluster.two, "b")
    two.serve("tcp", 80, "two")
    two.serve("udp", 80, "two")
    assert one.ask("tcp", ip_two, 80) == f"two {ip_one}"
    assert one.ask("udp", ip_two, 80) == f"two {ip_one}"


def test_only_what_goes_outside_is_masqueraded(cluster: Cluster) -> None:
    one, ip_one = cluster.pod(cluster.one, "a")
    cluster.outside.serve("tcp", 80, "outside")
    cluster.two.namespace.serve("tcp", 80, "node2")
    assert one.ask("tcp", "192.0.2.9", 80) == "outside 192.0.2.1"
    assert one.ask("tcp", "10.89.0.12", 80) == f"node2 {ip_one}"


def test_routes_follow_the_nodes(cluster: Cluster) -> None:
    def routes() -> str:
        return cluster.one.namespace.run("ip", "route").stdout

    assert "10.244.2.0/24 via 10.89.0.12 dev up0 proto 143" in routes()
    cluster.one.namespace.run("ip", "route", "add", "10.244.9.0/24", "via", "10.89.0.12")
    cluster.one.config["nodes"] = [NODES[0], NODES[1] | {"cidrs": ["10.244.3.0/24"]}]
    cluster.one.write_config()
    wait_for("the new podCIDR's route", lambda: "10.244.3.0/24 via 10.89.0.12" in routes())
    assert "10.244.2.0/24" not in routes()
    cluster.one.config["nodes"] = [NODES[0], {"name": "far", "ips": ["198.51.100.1"], "cidrs": ["10.244.4.0/24"]}]
    cluster.one.write_config()
    wait_for("the removed node's route is gone", lambda: "10.244.3.0/24" not in routes())
    assert "10.244.9.0/24" in routes()
    wait_for("a node on no link is reached by VXLAN", lambda: "10.244.4.0/24 via 10.244.4.1 dev nwvx0" in routes())


@pytest.mark.parametrize(
    "lost",
    [
        ["route", "del", "10.244.1.0/24", "dev", "nw0"],
        ["route", "del", "10.244.2.0/24"],
        ["addr", "flush", "dev", "nw0"],
        ["link", "set", "nw0", "down"],
    ],
    ids=lambda words: " ".join(words),
)
def test_what_somebody_removed_is_back_before_anybody_looks_for_it(cluster: Cluster, lost: list[str]) -> None:
    one, ip_one = cluster.pod(cluster.one, "a")
    two, _ = cluster.pod(cluster.two, "b")
    one.serve("tcp", 80, "one")
    assert two.ask("tcp", ip_one, 80).startswith("one ")
    before = _kernel_state(cluster.one)
    cluster.one.namespace.run("ip", *lost)
    # The audit once a minute would find it too: this is not about that.
    wait_for("what was there before", lambda: _kernel_state(cluster.one) == before, limit=20)
    assert two.ask("tcp", ip_one, 80).startswith("one ")


def _kernel_state(node: Node) -> str:
    return node.namespace.run("ip", "route").stdout + node.namespace.run("ip", "-4", "-br", "addr").stdout


def test_host_port_from_everywhere(cluster: Cluster) -> None:
    server, _ = cluster.pod(cluster.one, "server", runtimeConfig=ports(("", 8080, "tcp")))
    near, _ = cluster.pod(cluster.one, "near")
    far, ip_far = cluster.pod(cluster.two, "far")
    server.serve("tcp", 80, "server")
    assert cluster.two.namespace.ask("tcp", "10.89.0.11", 8080) == "server 10.89.0.12"
    assert far.ask("tcp", "10.89.0.11", 8080) == f"server {ip_far}"
    assert cluster.outside.ask("tcp", "192.0.2.1", 8080) == "server 192.0.2.9"
    assert cluster.one.namespace.ask("tcp", "10.89.0.11", 8080).startswith("server ")
    assert cluster.one.namespace.ask("tcp", "127.0.0.1", 8080).startswith("server ")
    assert server.ask("tcp", "10.89.0.11", 8080).startswith("server ")
    assert near.ask("tcp", "10.89.0.11", 8080).startswith("server ")
    assert near.ask("tcp", "10.244.1.1", 8080).startswith("server ")


def test_same_host_port_with_another_address_or_protocol(cluster: Cluster) -> None:
    """What the conformance test of that name does, from the node with the host's address as source."""
    cluster.one.namespace.run("ip", "addr", "add", "10.89.0.111/24", "dev", "up0")
    wanted = {"a": ("127.0.0.1", 54323, "tcp"), "b": ("10.89.0.11", 54323, "tcp"), "c": ("10.89.0.11", 54323, "udp")}
    for name, mapping in wanted.items():
        pod, _ = cluster.pod(cluster.one, name, runtimeConfig=ports(mapping))
        pod.serve(mapping[2], 80, name)
    node = cluster.one.namespace
    assert node.ask("tcp", "127.0.0.1", 54323, "10.89.0.11").startswith("a ")
    assert node.ask("tcp", "127.0.0.1", 54323).startswith("a ")
    assert node.ask("tcp", "10.89.0.11", 54323).startswith("b ")
    assert node.ask("udp", "10.89.0.11", 54323).startswith("c ")
    assert cluster.two.namespace.ask("tcp", "10.89.0.11", 54323) == "b 10.89.0.12"
    assert cluster.two.namespace.ask("udp", "10.89.0.11", 54323) == "c 10.89.0.12"
    assert cluster.two.namespace.ask("tcp", "10.89.0.111", 54323).startswith("no answer")


@pytest.mark.parametrize("server", ["server", "alone"])
def test_host_port_is_held_by_one_and_ends_with_it(cluster: Cluster, server: str) -> None:
    if server == "alone":
        cluster.one.stop_server()
    first = cluster.world.namespace()
    cluster.one.add("first", first, runtimeConfig=ports(("", 8080, "tcp")))
    first.serve("tcp", 80, "first")
    second = cluster.world.namespace()
    refused = cluster.one.call("ADD", "second", second.path, runtimeConfig=ports(("10.89.0.11", 8080, "tcp")))
    assert (refused.status, refused.body["code"]) == (1, 11)
    assert "hostPort 10.89.0.11:8080/tcp is held by ns/pod-first" in refused.body["msg"]
    assert len(cluster.one.store()) == 1
    assert cluster.two.namespace.ask("tcp", "10.89.0.11", 8080).startswith("first ")
    assert cluster.one.call("DEL", "first", first.path).status == 0
    assert cluster.two.namespace.ask("tcp", "10.89.0.11", 8080).startswith("no answer")
    cluster.one.add("second", second, runtimeConfig=ports(("10.89.0.11", 8080, "tcp")))
    second.serve("tcp", 80, "second")
    assert cluster.two.namespace.ask("tcp", "10.89.0.11", 8080).startswith("second ")


def test_host_ports_and_connections_survive_a_restart(cluster: Cluster) -> None:
    pod, _ = cluster.pod(cluster.one, "a", runtimeConfig=ports(("", 8080, "tcp")))
    pod.serve("tcp", 80, "a")
    cluster.one.stop_server(signal.SIGKILL)
    assert cluster.two.namespace.ask("tcp", "10.89.0.11", 8080).startswith("a ")
    cluster.one.start_server()
    assert cluster.two.namespace.ask("tcp", "10.89.0.11", 8080).startswith("a ")


def test_a_restart_without_the_api_server_changes_nothing(cluster: Cluster) -> None:
    pod, ip = cluster.pod(cluster.one, "a", runtimeConfig=ports(("", 8080, "tcp")))
    far, _ = cluster.pod(cluster.two, "b")
    pod.serve("tcp", 80, "a")
    cluster.outside.serve("tcp", 80, "outside")
    before = cluster.one.namespace.run("ip", "route").stdout
    cluster.one.stop_server()
    cluster.one.config["nodes"] = None
    cluster.one.start_server()
    late, ip_late = cluster.pod(cluster.one, "late", runtimeConfig=ports(("", 8081, "tcp")))
    assert cluster.one.namespace.run("ip", "route").stdout == before
    assert far.ask("tcp", ip, 80).startswith("a ")
    assert far.ask("tcp", "10.89.0.11", 8080).startswith("a ")
    assert late.ask("tcp", "192.0.2.9", 80) == "outside 192.0.2.1"
    cluster.two.namespace.serve("tcp", 80, "node2")
    assert late.ask("tcp", "10.89.0.12", 80) == f"node2 {ip_late}"


def test_udp_client_from_before_the_pod_reaches_it(cluster: Cluster) -> None:
    """A client that was there first has a conntrack entry without translation, which its packets keep alive."""
    client = cluster.two.namespace.start(
        "python3",
        "-c",
        "import socket,time\n"
        "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM);s.settimeout(.1)\n"
        "s.sendto(b'?',('10.89.0.11',5353));print('SENT',flush=True)\n"
        "end=time.monotonic()+50\n"
        "while time.monotonic()<end:\n"
        "  s.sendto(b'?',('10.89.0.11',5353))\n"
        "  try: print(s.recv(100).decode(),flush=True);break\n"
        "  except OSError: time.sleep(.1)\n",
        stdout=subprocess.PIPE,
    )
    assert client.stdout is not None
    assert client.stdout.readline() == b"SENT\n"
    pod, _ = cluster.pod(cluster.one, "dns", runtimeConfig=ports(("", 5353, "udp")))
    pod.serve("udp", 80, "dns")
    assert client.stdout.readline() == b"dns 10.89.0.12\n"


def test_a_service_on_the_same_node_answers_and_a_pod_reaches_itself(cluster: Cluster) -> None:
    """The way a service proxy's DNAT takes: the answer of a pod on the same bridge must be translated back."""
    server, ip_server = cluster.pod(cluster.one, "server")
    client, ip_client = cluster.pod(cluster.one, "client")
    server.serve("tcp", 80, "server")
    nat = ("iptables", "-w", "-t", "nat")
    run = cluster.one.namespace.run
    run(*nat, "-I", "PREROUTING", "-d", "10.96.0.1", "-p", "tcp", "-j", "DNAT", "--to-destination", f"{ip_server}:80")
    run(*nat, "-I", "POSTROUTING", "-s", ip_server, "-d", ip_server, "-j", "MASQUERADE")
    assert server.ask("tcp", "10.96.0.1", 80) == "server 10.244.1.1"
    if (Path("/proc/sys/net/bridge/bridge-nf-call-iptables")).exists():
        assert client.ask("tcp", "10.96.0.1", 80) == f"server {ip_client}"


def test_a_pod_does_not_reach_the_nodes_loopback(cluster: Cluster) -> None:
    pod, _ = cluster.pod(cluster.one, "a", runtimeConfig=ports(("", 8080, "tcp")))
    cluster.one.namespace.serve("tcp", 9000, "loopback")
    assert cluster.one.namespace.run("cat", "/proc/sys/net/ipv4/conf/nw0/route_localnet").stdout.strip() == "1"
    pod.run("ip", "link", "set", "lo", "down")
    pod.run("ip", "addr", "flush", "dev", "lo")
    pod.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet")
    pod.run("ip", "route", "flush", "table", "local", "127.0.0.0/8", check=False)
    pod.run("ip", "route", "add", "127.0.0.0/8", "via", "10.244.1.1", "dev", "eth0")
    assert pod.ask("tcp", "127.0.0.1", 9000).startswith("no answer")
    assert pod.ask("tcp", "10.244.1.1", 9000).startswith("loopback ")


def test_uninstall_leaves_nothing(cluster: Cluster) -> None:
    node = cluster.one
    cluster.pod(node, "a", runtimeConfig=ports(("", 8080, "tcp")))
    node.config["uninstall"] = True
    node.stop_server()
    node.start_server()
    node.stop_server(signal.SIGTERM)
    assert not node.conflist.exists()
    assert not node.shim.exists()
    assert not (node.folder / "cni.sock").exists()
    shown = node.namespace.run("ip", "-br", "link").stdout + node.namespace.run("ip", "route").stdout
    assert "nw0" not in shown
    assert "proto 143" not in shown
    rules = node.namespace.run("iptables-save").stdout + node.namespace.run("nft", "list", "ruleset").stdout
    assert "nodewright" not in rules.lower()


def test_a_node_that_changes_the_form_of_its_rules_has_one_of_them(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        cluster = Cluster(world, "iptables")
        pod, _ = cluster.pod(cluster.one, "a")
        cluster.outside.serve("tcp", 80, "outside")

        def forms() -> tuple[bool, bool]:
            tables = cluster.one.namespace.run("nft", "list", "tables").stdout
            chains = cluster.one.namespace.run("iptables-save").stdout
            return "NODEWRIGHT" in chains, "table ip nodewright" in tables

        for form, expected in (("nftables", (False, True)), ("iptables", (True, False))):
            cluster.one.config["settings"]["firewall"] = form
            cluster.one.stop_server()
            cluster.one.start_server()

            def switched(expected: tuple[bool, bool] = expected) -> bool:
                return forms() == expected

            wait_for(f"only {form}", switched)
            assert pod.ask("tcp", "192.0.2.9", 80) == "outside 192.0.2.1"
    finally:
        world.close()


def test_rules_that_somebody_flushed_come_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        cluster = Cluster(world, "iptables")
        pod, _ = cluster.pod(cluster.one, "a")
        cluster.outside.serve("tcp", 80, "outside")
        cluster.one.namespace.run("iptables", "-w", "-P", "FORWARD", "DROP")
        cluster.one.namespace.run("iptables", "-w", "-t", "nat", "-F")
        cluster.one.namespace.run("ip", "addr", "flush", "dev", "nw0")
        cluster.one.write_config()
        wait_for("masquerade again", lambda: pod.ask("tcp", "192.0.2.9", 80) == "outside 192.0.2.1")
        assert "NODEWRIGHT-POSTROUTING" in cluster.one.namespace.run("iptables-save", "-t", "nat").stdout
        assert "inet " in cluster.one.namespace.run("ip", "-o", "-4", "addr", "show", "dev", "nw0").stdout
    finally:
        world.close()


@pytest.mark.parametrize(("kind", "port"), [("tcp", 6443), ("udp", 4788)])
def test_a_pod_takes_no_port_on_which_the_node_listens(cluster: Cluster, kind: str, port: int) -> None:
    """The API server's, the kubelet's, sshd's: whoever may create pods would get what is sent to them."""
    cluster.one.namespace.serve(kind, port, "node1")
    pod = cluster.world.namespace()
    refused = cluster.one.call("ADD", "evil", pod.path, runtimeConfig=ports(("", port, kind)))
    assert (refused.status, refused.body.get("code")) == (1, 11)
    assert f"hostPort *:{port}/{kind} is the node's own: one of its processes listens at " in refused.body["msg"]
    assert cluster.one.store() == {}
    assert cluster.two.namespace.ask(kind, "10.89.0.11", port).startswith("node1 ")
    pod, _ = cluster.pod(cluster.one, "good", runtimeConfig=ports(("", port + 1, kind)))
    pod.serve(kind, 80, "good")
    assert cluster.two.namespace.ask(kind, "10.89.0.11", port + 1).startswith("good ")


def test_node_and_pod_find_each_other_whatever_the_table_of_neighbours_has(tmp_path: Path) -> None:
    """Permanent entries do not count in the table that all network namespaces of a machine share."""
    world = World(tmp_path)
    try:
        node = world.node()
        node.config["nodes"] = [{"name": "node1", "cidrs": ["10.244.0.0/24", "fd00:244::/64"]}]
        node.start_server()
        pod = world.namespace()
        addresses = node.add_all("c1", pod)
        mac = json.loads(pod.run("ip", "-json", "link", "show", "dev", "eth0").stdout)[0]["address"]

        def permanent(where: Namespace, link: str) -> dict[str, str]:
            shown = json.loads(where.run("ip", "-json", "neigh", "show", "nud", "permanent", "dev", link).stdout)
            return {one["dst"]: one["lladdr"] for one in shown}

        assert permanent(node.namespace, "nw0") == dict.fromkeys(addresses, mac)
        gateway = json.loads(node.namespace.run("ip", "-json", "link", "show", "dev", "nw0").stdout)[0]["address"]
        assert permanent(pod, "eth0") == {"10.244.0.1": gateway, "fd00:244::1": gateway}
        node.namespace.run("ip", "neigh", "flush", "dev", "nw0", "nud", "permanent")
        assert permanent(node.namespace, "nw0") == {}
        node.write_config()
        wait_for("the entries are back", lambda: permanent(node.namespace, "nw0") == dict.fromkeys(addresses, mac))
        pod.serve("tcp", 80, "pod")
        for address in addresses:
            assert node.namespace.ask("tcp", address, 80).startswith("pod ")
        assert node.call("DEL", "c1", pod.path).status == 0
        assert permanent(node.namespace, "nw0") == {}
    finally:
        world.close()
