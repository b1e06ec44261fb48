"""VXLAN has no key: who sends to a node's end of the overlay puts any packet into the pod network, past all rules."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from nodelib.addresses import hardware_address
from tests.netns.cni_world import Namespace, World, wait_for
from tests.netns.test_cni_overlay import Routed
from tests.netns.test_cni_spoofing import udp

pytestmark = pytest.mark.netns

VTEPS = {1: "10.89.1.11", 2: "10.89.2.11"}
_HEARS = """
import socket
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.bind(("", 7))
print("READY", flush=True)
while True:
    print(one.recvfrom(100)[0].decode(), flush=True)
"""
_SENDS = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for text in sys.argv[3:]:
    one.sendto(bytes.fromhex(text), (sys.argv[1], int(sys.argv[2])))
"""


@pytest.fixture(params=["iptables", "nftables"])
def routed(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Routed]:
    world = World(tmp_path)
    try:
        yield Routed(world, firewall=request.param)
    finally:
        world.close()


def inside(node: int, to: str, text: str) -> str:
    """A VXLAN packet for that node: from a pod that there is not, to UDP port 7 of `to`."""
    vtep = hardware_address(ip_address(VTEPS[node]))
    return "0800000000000100" + udp(vtep, "02:00:00:00:00:01", ("10.244.9.9", to), text.encode())


def send(who: Namespace, to: str, port: int, *payloads: str) -> None:
    who.run(sys.executable, "-IS", "-c", _SENDS, to, str(port), *payloads, check=False)


def test_no_packet_of_a_pod_reaches_the_end_of_the_overlay(routed: Routed) -> None:
    evil, _ = routed.pod(routed.one, "evil")
    near, (near_ip, _) = routed.pod(routed.one, "near")
    far, (far_ip, _) = routed.pod(routed.two, "far")
    far.serve("udp", 4789, "a pod's own port")
    # A Service whose endpoint is a node, reached by its node port: the proxy gives such a packet the node's address.
    for rule in (
        "PREROUTING -p udp --dport 30000 -j DNAT --to 10.89.2.11:4789",
        "POSTROUTING -d 10.89.2.11 -j MASQUERADE",
    ):
        routed.one.namespace.run("iptables", "-t", "nat", "-I", *rule.split())
    routed.two.namespace.run("ip", "addr", "add", "10.89.2.12/24", "dev", "eth0")
    listeners = []
    for pod in (near, far):
        listeners.append(pod.start(sys.executable, "-IS", "-c", _HEARS, stdout=subprocess.PIPE))
        said = listeners[-1].stdout
        assert said is not None and said.readline() == b"READY\n"
    ways = {
        "its own node": (VTEPS[1], 1, near_ip, 4789),
        "its node's gateway": ("10.244.1.1", 1, near_ip, 4789),
        "the other node": (VTEPS[2], 2, far_ip, 4789),
        "through the overlay": ("10.244.2.1", 2, far_ip, 4789),
        "another address": ("10.89.2.12", 2, far_ip, 4789),
        "a node port": (VTEPS[1], 2, far_ip, 30000),
    }
    for name, (to, node, inner, port) in ways.items():
        send(evil, to, port, inside(node, inner, name))
    assert evil.ask("udp", far_ip, 4789).startswith("a pod's own port")
    for to in (near_ip, far_ip):
        send(evil, to, 7, b"end".hex())
    for listener in listeners:
        assert listener.stdout is not None
        assert listener.stdout.readline() == b"end\n", "and nothing before"


def test_without_an_overlay_nothing_is_kept_from_the_port(routed: Routed) -> None:
    pod, _ = routed.pod(routed.one, "a")
    routed.one.config["nodes"] = routed.one.config["nodes"][:1]
    routed.one.write_config()
    wait_for("the overlay is gone", lambda: "nwvx0" not in routed.one.namespace.run("ip", "-br", "link").stdout)
    routed.one.namespace.serve("udp", 4789, "node")

    def answered() -> bool:
        return pod.ask("udp", "10.244.1.1", 4789).startswith("node")

    wait_for("an answer from the node's own port", answered)


def test_a_node_that_calls_the_nodes_network_its_pods_closes_no_tunnel(routed: Routed) -> None:
    """A node may make its own Node object with any podCIDR. What is sent from there was refused at the end of the
    overlay, so that no node had another one's pods.
    """
    one, _ = routed.pod(routed.one, "a")
    two, (two_ip, _) = routed.pod(routed.two, "b")
    two.serve("tcp", 80, "two")
    evil = {"name": "evil", "ips": ["10.89.2.66"], "cidrs": ["10.89.1.0/24", "10.89.2.0/24"]}
    for node in (routed.one, routed.two):
        node.config["nodes"] = [*node.config["nodes"], evil]
        node.write_config()
        wait_for("its ranges are refused", lambda: node.log.count("of node evil") == 2)  # noqa: B023
    assert one.ask("tcp", two_ip, 80).startswith("two ")
