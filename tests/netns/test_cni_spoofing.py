"""A pod with CAP_NET_RAW or CAP_NET_ADMIN that pretends to be somebody else: another pod, the node, a router."""

from __future__ import annotations

import ipaddress
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.netns.cni_world import Namespace, Node, World, wait_for

pytestmark = pytest.mark.netns

_RAW = """
import socket, sys
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind(("eth0", 0))
for text in sys.argv[1:]:
    sock.send(bytes.fromhex(text))
"""
# Prints the senders of frames to UDP port 7 of the node, until one comes with the payload "end".
_SEEN = """
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("0.0.0.0", 7))
print("READY", flush=True)
while True:
    data, peer = sock.recvfrom(100)
    print(peer[0], data.decode(), flush=True)
"""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def node(world: World) -> Node:
    made = world.node()
    made.start_server()
    return made


def mac_of(space: Namespace, link: str) -> str:
    shown = json.loads(space.run("ip", "-json", "link", "show", "dev", link).stdout)
    return str(shown[0]["address"])


def ports_of(node: Node, mac: str) -> list[str]:
    """Where the bridge sends frames to `mac`."""
    shown = json.loads(node.namespace.run("bridge", "-json", "fdb", "show", "br", "nw0").stdout)
    return [item["ifname"] for item in shown if item["mac"] == mac]


def setting(node: Node, name: str) -> str:
    return node.namespace.run("cat", f"/proc/sys/{name}").stdout.strip()


def udp(destination: str, source: str, ip: tuple[str, str], payload: bytes) -> str:
    """An Ethernet frame in hexadecimal: from `source` (hardware address, then IP address) to port 7."""
    header = struct.pack(">BBHHHBBH", 0x45, 0, 28 + len(payload), 1, 0, 64, 17, 0)
    header += b"".join(ipaddress.ip_address(one).packed for one in ip)
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + header[12:]
    body = struct.pack(">HHHH", 7, 7, 8 + len(payload), 0) + payload
    return destination.replace(":", "") + source.replace(":", "") + "0800" + (header + body).hex()


def test_a_pod_cannot_take_the_hardware_address_of_another(node: Node, world: World) -> None:
    """Upstream's bridge plugin has macspoofchk for that, with a chain for each pod, and off by default."""
    victim, evil, client = world.namespace(), world.namespace(), world.namespace()
    address = node.add("victim", victim)
    node.add("evil", evil)
    node.add("client", client)
    victim.serve("tcp", 8080, "victim")
    assert client.ask("tcp", address, 8080).startswith("victim ")
    own, theirs = mac_of(evil, "eth0"), mac_of(victim, "eth0")
    gateway = mac_of(node.namespace, "nw0")
    # Enough frames that a bridge that learns would send the victim's traffic to this port from now on.
    frame = udp(gateway, theirs, (address, "10.244.0.1"), b"x")
    before = ports_of(node, theirs)
    evil.run(sys.executable, "-IS", "-c", _RAW, *[frame] * 20)
    assert ports_of(node, theirs) == before
    assert client.ask("tcp", address, 8080).startswith("victim ")
    evil.run("ip", "link", "set", "eth0", "address", theirs)
    assert evil.ask("tcp", address, 8080).startswith("no answer")
    evil.run("ip", "link", "set", "eth0", "address", own)
    assert evil.ask("tcp", address, 8080).startswith("victim ")


def test_the_node_hears_pods_by_their_own_addresses_only(node: Node, world: World) -> None:
    pod = world.namespace()
    address = node.add("pod", pod)
    seen = node.folder / "seen"
    with seen.open("wb") as output:
        node.namespace.start(sys.executable, "-IS", "-c", _SEEN, stdout=output, stderr=subprocess.DEVNULL)
    wait_for("the listener", lambda: "READY" in seen.read_text())
    own, gateway = mac_of(pod, "eth0"), mac_of(node.namespace, "nw0")
    frames = [udp(gateway, own, (one, "10.244.0.1"), b"spoofed") for one in ("192.0.2.7", "10.244.9.9", "127.0.0.1")]
    frames.append(udp(gateway, "0a:58:01:02:03:04", (address, "10.244.0.1"), b"foreign"))
    frames.append(udp(gateway, own, (address, "10.244.0.1"), b"end"))
    pod.run(sys.executable, "-IS", "-c", _RAW, *frames)
    wait_for("the pod's own packet", lambda: "end" in seen.read_text())
    assert seen.read_text().split("\n")[1:-1] == [f"{address} end"]


def test_a_pod_is_no_router_of_the_node(node: Node, world: World) -> None:
    node.add("pod", world.namespace())
    assert setting(node, "net/ipv6/conf/nw0/accept_ra") == "0"
    assert setting(node, "net/ipv6/conf/nw0/accept_redirects") == "0"
    assert setting(node, "net/ipv4/conf/nw0/accept_redirects") == "0"
    assert setting(node, "net/ipv4/conf/nw0/rp_filter") == "1"
