"""Pods that fill the node's table of connections: others still get theirs, and nothing is in a quiet node's way.

The kernel's limit is one for the machine and cannot be set from a namespace, so most of these tests tell the guard of a
smaller table.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.netns.cni_world import ROOT, Namespace, Node, World, wait_for

pytestmark = pytest.mark.netns

FLOOD, SPRAY, FILL = (
    str(Path(__file__).with_name(name)) for name in ("conntrack_flood.py", "connection_spray.py", "conntrack_fill.py")
)
LIMIT = 2000
OUTSIDE, UPLINK = "192.0.2.9", "192.0.2.1"
# Asks an echo server over so many new connections, one after the other, and prints how many answered.
_ASK = """
import socket, sys
answered = 0
for number in range(int(sys.argv[3])):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(5)
        try:
            sock.connect((sys.argv[1], int(sys.argv[2])))
            sock.send(b"x")
            answered += bool(sock.recv(100))
        except OSError:
            pass
print(answered)
"""
# Frames with addresses of nobody, by the link to the bridge: to a hardware address, of an IP address, so many.
_FORGE = """
import socket, struct, sys
to, source = bytes.fromhex(sys.argv[1].replace(":", "")), bytes.fromhex(sys.argv[2].replace(":", ""))
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind(("eth0", 0))
for number in range(int(sys.argv[4])):
    claimed = bytes((198, 18, number >> 8, number & 255))
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 29, 0, 0, 64, 17, 0, claimed, socket.inet_aton(sys.argv[3]))
    total = sum(struct.unpack(">10H", head))
    total = (total & 0xFFFF) + (total >> 16)
    head = head[:10] + struct.pack(">H", ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF) + head[12:]
    sock.send(to + source + bytes((8, 0)) + head + struct.pack(">HHHHc", 9, 9, 9, 0, b"x"))
"""


@dataclass
class Crowd:
    """A node with four pods, a to d, and a machine outside that it has a route to."""

    world: World
    node: Node
    outside: Namespace
    pods: dict[str, Namespace]
    addresses: dict[str, list[str]]

    def spray(self, who: Namespace, kind: str, host: str, sockets: int, ports: int = 1) -> None:
        words = (kind, host, str(sockets), str(ports))
        process = who.start(sys.executable, "-IS", SPRAY, *words, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"READY\n"

    def flood(self, source: str, to: str) -> None:
        for one, other, direction in ((source, to, "to"), (to, source, "back")):
            words = (self.addresses[one][0], self.addresses[other][0], direction)
            process = self.pods[one].start(sys.executable, "-IS", FLOOD, *words, stdout=subprocess.PIPE)
            assert process.stdout is not None
            assert process.stdout.readline() == b"READY\n"

    def ask(self, source: Namespace, to: str, port: int, times: int) -> int:
        return int(source.run(sys.executable, "-IS", "-c", _ASK, to, str(port), str(times)).stdout)

    def entries(self) -> int:
        return int(self.node.namespace.run("cat", "/proc/sys/net/netfilter/nf_conntrack_count").stdout)

    def table(self) -> str:
        """What nft shows of the rules for IPv4; "" if there are none."""
        return self.node.namespace.run("nft", "list", "table", "ip", "nodewright-connections", check=False).stdout

    def bounded(self, kind: str = "senders", version: int = 4) -> list[str]:
        """The addresses in a set of the rules."""
        family = "ip" if version == 4 else "ip6"
        words = ("nft", "-j", "list", "set", family, "nodewright-connections", kind)
        shown = self.node.namespace.run(*words, check=False).stdout
        found = [one["set"] for one in json.loads(shown or "{}").get("nftables", ()) if "set" in one]
        return sorted(found[0].get("elem", ())) if found else []

    def count(self) -> dict[str, Any]:
        """What the guard's own process counts."""
        ranges = ["10.244.0.0/24"] + (["fd00:244::/64"] if len(self.addresses["a"]) > 1 else [])
        order = {"ranges": ranges, "own": ["10.244.0.1", UPLINK, "fd00:244::1"], "most": 1 << 20}
        argv = (sys.executable, "-m", "cni.edge.connection_table")
        return dict(json.loads(self.node.namespace.run(*argv, input=json.dumps(order), cwd=ROOT).stdout))

    def empty(self) -> None:
        self.node.namespace.run(sys.executable, "-IS", FILL, "flush")


@pytest.fixture
def crowd(tmp_path: Path) -> Iterator[Callable[..., Crowd]]:
    world = World(tmp_path)

    def made(cidrs: tuple[str, ...] = ("10.244.0.0/24",), **settings: Any) -> Crowd:
        node = world.node(**{"connection_limit": LIMIT} | settings)
        node.config["nodes"] = [{"name": "node1", "cidrs": list(cidrs)}]
        outside = world.namespace()
        world.link(node.namespace, "up0", f"{UPLINK}/24", outside, "out0", f"{OUTSIDE}/24")
        outside.run("ip", "route", "add", "10.244.0.0/24", "via", UPLINK)
        node.namespace.run("ip", "route", "add", "default", "via", OUTSIDE)
        node.start_server()
        pods = {name: world.namespace() for name in "abcd"}
        addresses = {name: node.add_all(name, pod) for name, pod in pods.items()}
        return Crowd(world, node, outside, pods, addresses)

    try:
        yield made
    finally:
        world.close()


def test_a_pod_that_fills_the_table_is_bounded_and_cut_until_there_is_room(crowd: Callable[..., Crowd]) -> None:
    here = crowd()
    a, b = here.addresses["a"][0], here.addresses["b"][0]
    here.pods["d"].serve("udp", 7777, "d")
    assert here.ask(here.pods["c"], here.addresses["d"][0], 7777, 50) == 50
    assert here.table() == ""
    here.spray(here.pods["a"], "udp", b, 18, 100)
    wait_for("who fills it is bounded", lambda: here.bounded() == [a])
    wait_for("and cut", lambda: here.entries() <= LIMIT * 0.55)
    assert "ns/pod-a: " in here.node.log
    here.spray(here.pods["a"], "udp", b, 10, 100)
    assert here.entries() < LIMIT * 0.75
    assert here.ask(here.pods["c"], here.addresses["d"][0], 7777, 50) == 50
    here.pods["a"].end_all()
    here.empty()
    wait_for("the rules go", lambda: here.table() == "")
    assert "there is room again" in here.node.log
    assert here.ask(here.pods["a"], here.addresses["d"][0], 7777, 50) == 50


def test_ipv6(crowd: Callable[..., Crowd]) -> None:
    here = crowd(("10.244.0.0/24", "fd00:244::/64"))
    here.spray(here.pods["a"], "udp", here.addresses["b"][1], 18, 100)
    wait_for("who fills it is bounded", lambda: here.bounded(version=6) == [here.addresses["a"][1]])
    wait_for("and cut", lambda: here.entries() <= LIMIT * 0.55)
    assert here.bounded() == []


def test_connections_to_addresses_that_nobody_has(crowd: Callable[..., Crowd]) -> None:
    here = crowd()
    here.outside.run("ip", "route", "add", "blackhole", "198.51.100.0/24")
    here.spray(here.pods["a"], "tcp", "198.51.100.7", 1800)
    wait_for("who fills it is bounded", lambda: here.bounded() == [here.addresses["a"][0]])
    wait_for("and cut", lambda: here.entries() <= LIMIT * 0.55)


def test_many_pods_of_one_namespace_are_bounded_together(crowd: Callable[..., Crowd]) -> None:
    here = crowd()
    for name in "abc":
        here.spray(here.pods[name], "udp", here.addresses["d"][0], 6, 100)
    wait_for("all of them are bounded", lambda: len(here.bounded()) == 3)
    wait_for("and cut", lambda: here.entries() <= LIMIT * 0.55)


def test_a_pod_that_is_flooded_from_outside_is_not_punished(crowd: Callable[..., Crowd]) -> None:
    here = crowd()
    a = here.addresses["a"][0]
    here.pods["a"].serve("udp", 7777, "a")
    here.pods["d"].serve("udp", 7777, "d")
    here.spray(here.outside, "udp", a, 18, 100)
    wait_for("what it receives is bounded", lambda: here.bounded("receivers") == [a])
    wait_for("and cut", lambda: here.entries() <= LIMIT * 0.55)
    assert here.bounded() == []
    here.spray(here.outside, "udp", a, 10, 100)
    assert here.entries() < LIMIT * 0.75
    # It begins connections, and its node and other pods reach it.
    assert here.ask(here.pods["a"], here.addresses["d"][0], 7777, 50) == 50
    assert here.ask(here.node.namespace, a, 7777, 50) == 50
    assert here.ask(here.pods["c"], a, 7777, 50) == 50


def test_the_node_itself_is_not_bounded(crowd: Callable[..., Crowd]) -> None:
    here = crowd()
    here.spray(here.node.namespace, "udp", here.addresses["a"][0], 18, 100)
    wait_for("the table is looked at", lambda: here.table() != "")
    assert here.count()["held"] == []
    assert here.bounded() == []
    here.spray(here.node.namespace, "udp", here.addresses["b"][0], 18, 100)
    assert here.entries() > LIMIT


def test_senders_that_no_pod_is_are_bounded_together(crowd: Callable[..., Crowd]) -> None:
    """Without the policy daemon a pod can send to another pod of its node by the address of anybody."""
    here = crowd()
    here.spray(here.node.namespace, "udp", here.addresses["c"][0], 16, 100)
    wait_for("the rules are there", lambda: here.table() != "")
    before = here.entries()
    macs = [
        json.loads(here.pods[name].run("ip", "-json", "link", "show", "dev", "eth0").stdout)[0]["address"]
        for name in "ab"
    ]
    to = here.addresses["b"][0]
    here.pods["a"].run(sys.executable, "-IS", "-c", _FORGE, macs[1], macs[0], to, "5000")
    assert before < here.entries() < before + 3000


def test_packets_of_a_connection_that_nobody_answers_are_not_new(crowd: Callable[..., Crowd]) -> None:
    here = crowd()
    here.spray(here.node.namespace, "udp", here.addresses["c"][0], 16, 100)
    wait_for("the rules are there", lambda: here.table() != "")
    code = f"""
import socket
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(5000):
    sock.sendto(b"x", ("{here.addresses["b"][0]}", 9))
"""
    here.pods["a"].run(sys.executable, "-IS", "-c", code)
    assert re.findall(r"@rates .* counter packets (\d+)", here.table()) == ["0"]


def test_what_the_process_counts(crowd: Callable[..., Crowd]) -> None:
    here = crowd(connection_limit=1 << 20)
    a, b = here.addresses["a"][0], here.addresses["b"][0]
    here.pods["b"].serve("tcp", 80, "b")
    here.pods["b"].serve("udp", 81, "b")
    here.empty()
    here.spray(here.pods["a"], "udp", b, 2, 30)
    assert here.pods["a"].ask("udp", b, 81)
    assert here.pods["a"].ask("tcp", b, 80)
    here.pods["b"].sink(82)
    code = "import socket, sys; s = socket.create_connection((sys.argv[1], 82)); print('UP', flush=True); input()"
    living = here.pods["a"].start(sys.executable, "-IS", "-c", code, b, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert living.stdout is not None
    assert living.stdout.readline() == b"UP\n"
    assert here.count()["held"] == [[False, a, [60, 2, 1]]]
    # Entries of the pods' own kernels (neighbours, routers) come and go between the two readings.
    wait_for("the kernel's own count", lambda: here.count()["entries"] == here.entries())
    assert living.stdin is not None
    living.stdin.close()


def test_others_get_their_connections_while_the_kernels_own_table_is_flooded(crowd: Callable[..., Crowd]) -> None:
    here = crowd(connection_limit=0)
    limit = int(Path("/proc/sys/net/netfilter/nf_conntrack_max").read_text())
    if limit > 270_000:
        pytest.skip(f"the machine's table has room for {limit} entries, more than this flood makes")
    here.pods["d"].serve("udp", 7777, "d")
    here.flood("a", "b")
    wait_for("a flood is bounded", lambda: "its part is" in here.node.log)
    wait_for("and cut", lambda: " deleted, " in here.node.log)
    for _ in range(5):
        assert here.ask(here.pods["c"], here.addresses["d"][0], 7777, 50) == 50
        assert here.entries() < limit * 0.9
