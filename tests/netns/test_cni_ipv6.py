"""Dual-stack nodes on one link, on the real kernel: IPv6 routes, masquerade and hostPorts, by ip6tables and by nft.

node1 (10.89.0.11, fd89::11) and node2 (.12); outside (192.0.2.9, fd77::9) behind node1 has no route to pods.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.cni_world import Namespace, Node, World

pytestmark = pytest.mark.netns

NODES = [
    {"name": "node1", "ips": ["10.89.0.11", "fd89::11"], "cidrs": ["10.244.1.0/24", "fd44:0:0:1::/64"]},
    {"name": "node2", "ips": ["10.89.0.12", "fd89::12"], "cidrs": ["10.244.2.0/24", "fd44:0:0:2::/64"]},
]


class Dual:
    def __init__(self, world: World, firewall: str) -> None:
        self.world = world
        more = {"firewall": firewall, "cluster_cidrs": ["10.244.0.0/16", "fd44::/48"]}
        self.one, self.two = (world.node(f"node{n}", "", **more) for n in (1, 2))
        self.outside = world.namespace()
        one, two = self.one.namespace, self.two.namespace
        world.link(one, "up0", "10.89.0.11/24 fd89::11/64", two, "up0", "10.89.0.12/24 fd89::12/64")
        world.link(one, "out0", "192.0.2.1/24 fd77::1/64", self.outside, "out0", "192.0.2.9/24 fd77::9/64")
        for node in (self.one, self.two):
            node.config["nodes"] = NODES
            node.start_server()

    def pod(self, node: Node, name: str, *mappings: tuple[str, int, str]) -> tuple[Namespace, str]:
        """The pod and its IPv6 address."""
        ports = [
            {"hostIP": ip, "hostPort": port, "containerPort": 80, "protocol": protocol}
            for ip, port, protocol in mappings
        ]
        pod = self.world.namespace()
        return pod, node.add_all(name, pod, runtimeConfig={"portMappings": ports})[1]


@pytest.fixture(params=["iptables", "nftables"])
def dual(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Dual]:
    world = World(tmp_path)
    try:
        yield Dual(world, request.param)
    finally:
        world.close()


def test_pods_see_each_other_and_only_what_goes_outside_is_masqueraded(dual: Dual) -> None:
    one, ip_one = dual.pod(dual.one, "a")
    two, ip_two = dual.pod(dual.two, "b")
    two.serve("tcp", 80, "two")
    dual.outside.serve("tcp", 80, "outside")
    dual.two.namespace.serve("tcp", 81, "node2")
    assert one.ask("tcp", ip_two, 80) == f"two {ip_one}"
    assert one.ask("tcp", "fd77::9", 80) == "outside fd77::1"
    assert one.ask("tcp", "fd89::12", 81) == f"node2 {ip_one}"
    assert one.ask("tcp", "192.0.2.9", 80) == "outside 192.0.2.1"


def test_host_ports_of_both_families_with_host_ip_and_protocol(dual: Dual) -> None:
    server, _ = dual.pod(dual.one, "server", ("", 8080, "tcp"), ("fd89::11", 8081, "udp"))
    near, _ = dual.pod(dual.one, "near")
    server.serve("tcp", 80, "server")
    server.serve("udp", 80, "server")
    far = dual.two.namespace
    assert far.ask("tcp", "fd89::11", 8080) == "server fd89::12"
    assert far.ask("tcp", "10.89.0.11", 8080) == "server 10.89.0.12"
    assert dual.outside.ask("tcp", "fd77::1", 8080) == "server fd77::9"
    assert far.ask("udp", "fd89::11", 8081) == "server fd89::12"
    assert far.ask("udp", "10.89.0.11", 8081).startswith("no answer")
    assert server.ask("tcp", "fd89::11", 8080).startswith("server "), "a pod reaches itself by its hostPort"
    assert near.ask("tcp", "fd89::11", 8080).startswith("server ")
    assert dual.one.namespace.ask("tcp", "fd89::11", 8080).startswith("server ")
