"""Nodes that share no link, on the real kernel: VXLAN between them, both families, and full-size packets.

node1 (10.89.1.11, fd89:1::11) and node2 (10.89.2.11, fd89:2::11) share a router without routes to pods.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.netns.cni_world import Namespace, Node, World, wait_for

pytestmark = pytest.mark.netns

NODES = [
    {"name": "node1", "ips": ["10.89.1.11", "fd89:1::11"], "cidrs": ["10.244.1.0/24", "fd44:0:0:1::/64"]},
    {"name": "node2", "ips": ["10.89.2.11", "fd89:2::11"], "cidrs": ["10.244.2.0/24", "fd44:0:0:2::/64"]},
]
MIB = 1 << 20


class Routed:
    def __init__(self, world: World, **settings: Any) -> None:
        self.world = world
        self.router = world.namespace()
        self.router.run(
            "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"
        )
        clusters = ["10.244.0.0/16", "fd44::/48"]
        self.one, self.two = (world.node(f"node{n}", "", cluster_cidrs=clusters, **settings) for n in (1, 2))
        for number, node in ((1, self.one), (2, self.two)):
            self._join(node, number)
        for node in (self.one, self.two):
            node.config["nodes"] = NODES
            node.start_server()

    def _join(self, node: Node, number: int) -> None:
        own, far = f"10.89.{number}.11/24 fd89:{number}::11/64", f"10.89.{number}.1/24 fd89:{number}::1/64"
        self.world.link(node.namespace, "eth0", own, self.router, f"to{number}", far)
        node.namespace.run("ip", "route", "add", "default", "via", f"10.89.{number}.1")
        node.namespace.run("ip", "route", "add", "default", "via", f"fd89:{number}::1")

    def pod(self, node: Node, name: str) -> tuple[Namespace, list[str]]:
        pod = self.world.namespace()
        return pod, node.add_all(name, pod)


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[Routed]:
    world = World(tmp_path)
    try:
        yield Routed(world)
    finally:
        world.close()


def mtu(namespace: Namespace, link: str) -> int:
    return int(json.loads(namespace.run("ip", "-json", "link", "show", link).stdout)[0]["mtu"])


def test_pods_of_both_nodes_talk_through_vxlan_with_their_own_addresses(routed: Routed) -> None:
    one, ips_one = routed.pod(routed.one, "a")
    two, ips_two = routed.pod(routed.two, "b")
    two.serve("tcp", 80, "two")
    two.serve("udp", 81, "two")
    two.sink(82)
    for mine, theirs in zip(ips_one, ips_two, strict=True):
        assert one.ask("tcp", theirs, 80) == f"two {mine}"
        assert one.ask("udp", theirs, 81) == f"two {mine}"
        assert one.send(theirs, 82, 4 * MIB)[0] == 4 * MIB
    assert (mtu(one, "eth0"), mtu(routed.one.namespace, "nw0"), mtu(routed.one.namespace, "nwvx0")) == (1450,) * 3
    # Node to pod, by the address that leads back through the tunnel.
    assert routed.one.namespace.ask("tcp", ips_two[0], 80) == "two 10.244.1.1"
    assert routed.one.namespace.ask("tcp", ips_two[1], 80) == "two fd44:0:0:1::1"
    assert routed.one.namespace.run("ip", "-6", "addr", "show", "tentative", "scope", "global").stdout == ""


def test_a_narrow_path_is_found_and_running_pods_follow(routed: Routed) -> None:
    one, _ = routed.pod(routed.one, "a")
    two, ips_two = routed.pod(routed.two, "b")
    two.sink(82)
    # Narrow on the router's side only: node1 learns it by the router's answer, its own link still says 1500.
    routed.router.run("ip", "link", "set", "to2", "mtu", "1400")
    routed.two.namespace.run("ip", "link", "set", "eth0", "mtu", "1400")
    for node in (routed.one, routed.two):
        node.write_config()
    for pod, node in ((one, routed.one), (two, routed.two)):

        def follows(pod: Namespace = pod) -> bool:
            return mtu(pod, "eth0") == 1350

        wait_for("the pod follows", follows)
        assert {mtu(node.namespace, link) for link in ("nw0", "nwvx0", *node.veths())} == {1350}
    assert one.send(ips_two[0], 82, 4 * MIB)[0] == 4 * MIB


def test_one_very_narrow_path_takes_no_pods_ipv6(routed: Routed) -> None:
    """Below 1,280 bytes the kernel takes IPv6 off the pods' links, and whoever is on the way to one node says so."""
    one, _ = routed.pod(routed.one, "a")
    beside, (_, beside_ip) = routed.pod(routed.one, "beside")
    two, (two_ip, _) = routed.pod(routed.two, "b")
    beside.serve("tcp", 80, "beside")
    two.sink(82)
    routed.router.run("ip", "route", "replace", "10.89.2.11/32", "dev", "to2", "mtu", "lock", "600")
    routed.one.write_config()
    wait_for("the pod follows", lambda: mtu(one, "eth0") == 1280)
    assert one.ask("tcp", beside_ip, 80).startswith("beside")
    assert one.send(two_ip, 82, MIB)[0] == MIB, "in fragments"


def test_the_overlay_follows_the_nodes(routed: Routed) -> None:
    space = routed.one.namespace
    assert "via 10.244.2.1 dev nwvx0 proto 143 onlink" in space.run("ip", "route", "show", "10.244.2.0/24").stdout
    assert "dst 10.89.2.11 self permanent" in space.run("bridge", "fdb", "show", "dev", "nwvx0").stdout
    routed.one.config["nodes"] = [NODES[0]]
    routed.one.write_config()
    wait_for("the overlay is gone", lambda: "nwvx0" not in space.run("ip", "-br", "link").stdout)
    assert "proto 143" not in space.run("ip", "route").stdout + space.run("ip", "-6", "route").stdout
    routed.one.config["nodes"] = NODES
    routed.one.write_config()
    pod, _ = routed.pod(routed.one, "a")
    two, ips_two = routed.pod(routed.two, "b")
    two.serve("tcp", 80, "two")
    wait_for("the other node's pods again", lambda: pod.ask("tcp", ips_two[0], 80).startswith("two "))


def test_what_is_deleted_by_hand_comes_back(routed: Routed) -> None:
    pod, _ = routed.pod(routed.one, "a")
    two, ips_two = routed.pod(routed.two, "b")
    two.serve("tcp", 80, "two")
    routed.one.namespace.run("bridge", "fdb", "del", "0a:58:0a:59:02:0b", "dev", "nwvx0", "dst", "10.89.2.11")
    routed.one.namespace.run("ip", "neigh", "flush", "dev", "nwvx0", "nud", "permanent")
    routed.one.write_config()
    wait_for("the entries again", lambda: pod.ask("tcp", ips_two[0], 80).startswith("two "))
    assert "dst 10.89.2.11 self permanent" in routed.one.namespace.run("bridge", "fdb", "show", "dev", "nwvx0").stdout
    routed.one.namespace.run("ip", "link", "del", "nwvx0")
    routed.one.write_config()
    wait_for("the link again", lambda: pod.ask("tcp", ips_two[1], 80).startswith("two "))
    assert "nwvx0" in routed.one.namespace.run("ip", "-br", "link").stdout
