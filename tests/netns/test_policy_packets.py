"""Real packets under real policies, beside the proxy in each kernel mode: who may reach whom.

The world is that of test_proxy_packets.py: pods .11, .12 and .13 on one bridge, a client outside, both families.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any

import pytest

from cli.explain.facts import Facts
from cli.explain.reasons import decides, reason
from nodelib.addresses import hardware_address
from nodelib.firewall.objects import Family
from nodelib.firewall.trace import Packet
from nodelib.json_values import Json
from policy.model import Name
from tests.builders.policies import apps, block, namespaces, pod, policy
from tests.builders.services import endpoint, endpoint_slice, service
from tests.netns.cni_world import wait_for
from tests.netns.policy_world import PolicyWorld, fill
from tests.netns.test_cni_spoofing import mac_of, udp
from tests.netns.test_proxy_packets import CLIENT, CONTEXT, FAR, NODE, OUTSIDE, POD1, POD2, SERVICE
from tests.unit.proxy.build import desired

pytestmark = pytest.mark.netns

DROPPED = "TimeoutError"
V6 = {POD1: "fd00:244::11", POD2: "fd00:244::12", FAR: "fd00:244::13", CLIENT: "2001:db8::9"}
PODS = [
    pod("one", POD1, V6[POD1], ports={"web": 8080}),
    pod("two", POD2, V6[POD2]),
    pod("far", FAR, V6[FAR], namespace="b"),
]
SPACES = {"a": {"team": "red"}, "b": {"team": "blue"}}
NAMES = {POD1: "pod11", POD2: "pod12", FAR: "pod13"}


@pytest.fixture(scope="module")
def world() -> Iterator[PolicyWorld]:
    one = PolicyWorld()
    # Right after a link is set up its IPv6 neighbours are not found yet.
    for who in ("client", POD2, FAR):
        wait_for(f"IPv6 between {who} and {POD1}", partial(is_answered, one, who, V6[POD1]))
    yield one
    one.close()


@dataclass(frozen=True)
class Case:
    """`asks`: (who, to) -> whether it is answered, on port 8080 and in both families."""

    name: str
    policies: tuple[Json, ...]
    asks: dict[tuple[str, str], bool]
    pods: list[Json] = field(default_factory=lambda: PODS)


ONE: Json = {"app": "one"}
CASES = [
    Case("no policy", (), {(POD2, POD1): True, ("client", POD1): True}),
    Case(
        "deny all ingress",
        (policy(select=ONE),),
        {
            (POD2, POD1): False,
            (FAR, POD1): False,
            ("client", POD1): False,
            ("node", POD1): True,
            (POD1, POD2): True,
            (POD1, POD1): True,
        },
    ),
    Case(
        "an empty selector selects every pod of the namespace, and no other",
        (policy(),),
        {(POD1, POD2): False, (POD2, POD1): False, (POD1, FAR): True},
    ),
    Case(
        "pods of the same namespace",
        (policy(select=ONE, ingress=[{"from": [apps("two", "far")]}]),),
        {(POD2, POD1): True, (FAR, POD1): False, ("client", POD1): False},
    ),
    Case(
        "pods of another namespace",
        (policy(select=ONE, ingress=[{"from": [namespaces(team="blue")]}]),),
        {(POD2, POD1): False, (FAR, POD1): True},
    ),
    Case(
        "both selectors",
        (policy(select=ONE, ingress=[{"from": [namespaces(team="blue") | apps("two")]}]),),
        {(POD2, POD1): False, (FAR, POD1): False},
    ),
    Case(
        "an address block with exceptions, and one in it again",
        (
            policy(
                select=ONE,
                ingress=[
                    {
                        "from": [
                            block("203.0.113.0/24", "203.0.113.0/29"),
                            block("10.244.0.0/24", "10.244.0.12/30"),
                            block("10.244.0.13/32"),
                            block("2001:db8::/64"),
                            block("fd00:244::/64", "fd00:244::12/127"),
                            block("fd00:244::13/128"),
                        ]
                    }
                ],
            ),
        ),
        {("client", POD1): True, (POD2, POD1): False, (FAR, POD1): True},
    ),
    Case(
        "another port only",
        (policy(select=ONE, ingress=[{"ports": [{"port": 8081}]}]),),
        {(POD2, POD1): False},
    ),
    Case(
        "a range of ports, which overlaps another",
        (policy(select=ONE, ingress=[{"ports": [{"port": 8000, "endPort": 8080}, {"port": 8070, "endPort": 9000}]}]),),
        {(POD2, POD1): True},
    ),
    Case(
        "the right port of the wrong protocol",
        (policy(select=ONE, ingress=[{"ports": [{"port": 8080, "protocol": "UDP"}]}]),),
        {(POD2, POD1): False},
    ),
    Case("a named port", (policy(select=ONE, ingress=[{"ports": [{"port": "web"}]}]),), {(POD2, POD1): True}),
    Case("a name that it has not", (policy(select=ONE, ingress=[{"ports": [{"port": "db"}]}]),), {(POD2, POD1): False}),
    Case(
        "egress to nobody; ingress stays open",
        (policy(select=ONE, policyTypes=["Egress"]),),
        {(POD1, POD2): False, (POD1, CLIENT): False, (POD1, NODE): True, (POD2, POD1): True, (POD1, POD1): True},
    ),
    Case(
        "egress to a named port of the target",
        (policy(select={"app": "two"}, policyTypes=["Egress"], egress=[{"ports": [{"port": "web"}]}]),),
        {(POD2, POD1): True, (POD2, FAR): False},
    ),
    Case(
        "egress allowed, ingress not",
        (policy(select=ONE), policy("q", select={"app": "two"}, policyTypes=["Egress"], egress=[{}])),
        {(POD2, POD1): False, (POD2, FAR): True},
    ),
    Case(
        "two policies add up",
        (
            policy(select=ONE, ingress=[{"from": [apps("two")]}]),
            policy("q", select=ONE, ingress=[{"from": [namespaces(team="blue")]}]),
        ),
        {(POD2, POD1): True, (FAR, POD1): True, ("client", POD1): False},
    ),
    Case(
        "pods of other nodes are not this node's to isolate",
        (policy(select=ONE),),
        {(POD2, POD1): True},
        [pod("one", POD1, V6[POD1], node="node2"), *PODS[1:]],
    ),
    Case(
        "a pod that has ended is neither selected nor a peer",
        (policy(select=ONE, ingress=[{"from": [apps("two")]}]),),
        {(POD2, POD1): False},
        [PODS[0], pod("two", POD2, V6[POD2], phase="Failed"), PODS[2]],
    ),
]


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("case", CASES, ids=[one.name for one in CASES])
def test_who_may_reach_whom(world: PolicyWorld, case: Case, family: Family) -> None:
    world.apply(case.pods, case.policies, SPACES)
    found = {
        (who, to): is_answered(world, who, to if family is Family.IPV4 else V6.get(to, "fd00:244::1"))
        for who, to in case.asks
    }
    assert found == case.asks


def is_answered(world: PolicyWorld, who: str, to: str) -> bool:
    """Whether a packet came back: pods answer, the client and the node refuse the connection at once."""
    return DROPPED not in world.ask(who, to, 8080, 1, timeout=1)


_CONNECT = """
import socket, sys
try:
    socket.create_connection((sys.argv[1], 8080), 1)
    print("answered")
except OSError as error:
    print(type(error).__name__)
"""


def test_no_link_local_address_leads_around_a_policy(world: PolicyWorld) -> None:
    """Pods of one node share a link, so the kernel's bridge would bring them together."""
    world.apply(PODS, [], SPACES)
    shown = world.pods[POD1].run("ip", "-6", "-o", "addr", "show", "scope", "link").stdout.split()
    address = shown[shown.index("inet6") + 1].partition("/")[0] + "%eth0"

    def asked() -> str:
        return str(world.pods[POD2].run(sys.executable, "-S", "-c", _CONNECT, address).stdout.strip())

    # Without any policy it is the pods' own affair, once both links have their addresses.
    wait_for("an answer by a link-local address", lambda: asked() == "answered")
    for policies in ([policy(select=ONE)], [policy(select={"app": "two"}, policyTypes=["Egress"])]):
        world.apply(PODS, policies, SPACES)
        assert asked() == DROPPED
    assert is_answered(world, FAR, V6[POD1]), "neighbour discovery goes on"


PORTS = [{"name": "p80", "port": 80, "protocol": "TCP", "nodePort": 30080}]
SERVICE_OF_TWO = (
    service("s", SERVICE, type="NodePort", ports=PORTS),
    endpoint_slice(
        "s",
        [endpoint(POD1, node="node1"), endpoint(POD2, node="node1")],
        ports=[{"name": "p80", "port": 8080, "protocol": "TCP"}],
    ),
)


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_services_lead_to_pods_under_their_policies(world: PolicyWorld, mode: str) -> None:
    """The rule names the pod's own port, the source is the true client, and a pod reaches itself through a Service."""
    backend = world.backend(mode, CONTEXT)
    ingress = [{"from": [namespaces(team="blue")], "ports": [{"port": 8080}]}]
    two_allows_itself = policy("two", select={"app": "two"})
    try:
        asyncio.run(backend.sync(desired(*SERVICE_OF_TWO, node="node1"), None))
        world.apply(PODS, [policy(select=ONE, ingress=ingress), two_allows_itself], SPACES)
        ask: Any = lambda who, to, port: world.ask(who, to, port, 12, timeout=0.5)  # noqa: E731
        assert ask(FAR, SERVICE, 80) == f"{DROPPED}, pod11 {FAR}"
        assert ask(FAR, OUTSIDE, 30080) == f"{DROPPED}, pod11 {NODE}"
        assert ask("client", OUTSIDE, 30080) == DROPPED
        assert ask("node", SERVICE, 80) == f"pod11 {NODE}, pod12 {NODE}"
        assert ask(POD2, SERVICE, 80) == f"{DROPPED}, pod12 {NODE}", "itself it reaches, the other not"
        world.apply(PODS, [policy(select=ONE, ingress=[{"from": [block(f"{CLIENT}/32")]}]), two_allows_itself], SPACES)
        assert ask("client", OUTSIDE, 30080) == f"{DROPPED}, pod11 {NODE}", "its own address, before the masquerade"
        world.apply(PODS, [policy(policyTypes=["Egress"], egress=[{"to": [apps("two")]}])], SPACES)
        assert ask(POD1, SERVICE, 80) == f"pod11 {NODE}, pod12 {POD1}", "egress is to pods, not to cluster IPs"
    finally:
        asyncio.run(backend.cleanup())
        world.apply(PODS, [], SPACES)


def test_a_flow_that_is_no_longer_allowed_stops_and_goes_on_when_it_is_again(world: PolicyWorld) -> None:
    world.apply(PODS, [], SPACES)
    stopped, kept = world.stream(POD2, POD1, 8080), world.stream(FAR, POD1, 8080)
    for one in (stopped, kept):
        assert one.stdout is not None and one.stdout.readline()

    world.apply(PODS, [policy(select=ONE, ingress=[{"from": [namespaces(team="blue")]}])], SPACES)

    assert stopped.stdout is not None and stopped.stdout.read().startswith(b"broken after"), "it ends by itself"
    assert kept.stdin is not None and kept.stdout is not None and kept.poll() is None
    kept.stdin.close()
    assert kept.stdout.read().splitlines()[-1].startswith(b"ok")


def test_a_connection_that_was_judged_is_spared_the_rules_until_they_change(world: PolicyWorld) -> None:
    """The rule that allows it counts the packets that it sees; the marks of others stay."""
    allowed = policy(select=ONE, ingress=[{"from": [apps("two")]}])
    world.apply(PODS, [allowed], SPACES)
    world.node.run("nft", "add table ip other; add chain ip other c { type filter hook forward priority -5; }")
    world.node.run("nft", "add rule ip other c tcp dport 8080 ct state new ct mark set 0x8000")

    def seen() -> int:
        rules = world.node.run("nft", "list", "table", "ip", "nodewright-policy").stdout.splitlines()
        (line,) = [one for one in rules if "a/p ingress[0]" in one]
        return int(line.split("packets ")[1].split()[0])

    try:
        flow = world.stream(POD2, POD1, 8080)
        assert flow.stdout is not None and flow.stdin is not None and flow.stdout.readline() == b"READY\n"
        time.sleep(0.2)  # packets of the flow go on all the time
        assert seen() == 1, "its first packet"
        world.node.run("nft", "add rule ip other c tcp dport 8080 ct mark & 0xc000 == 0x8000 counter")
        wait_for("a packet with the mark that another table gave its connection", lambda: _counted(world) > 0)
        world.apply(PODS, [allowed, policy("q", select={"app": "two"})], SPACES)
        wait_for("judged again, whoever sends first", lambda: seen() == 1)
        flow.stdin.close()
        assert flow.stdout.read().splitlines()[-1].startswith(b"ok")
    finally:
        world.node.run("nft", "delete", "table", "ip", "other")


def _counted(world: PolicyWorld) -> int:
    shown = world.node.run("nft", "list", "table", "ip", "other").stdout
    return int(shown.split("counter packets ")[1].split()[0])


def test_a_change_writes_what_changed_and_a_flush_by_somebody_else_is_undone(world: PolicyWorld) -> None:
    async def scenario() -> None:
        enforcer = world.enforcer()
        fill(enforcer, PODS, [policy(select=ONE, ingress=[{"from": [apps("two", "new")]}])], SPACES)
        enforcer.start()
        await enforcer.sync()
        assert not await asyncio.to_thread(is_answered, world, FAR, POD1)
        fill(enforcer, [pod("new", FAR, V6[FAR])], namespaces=SPACES)
        await enforcer.sync()
        assert await asyncio.to_thread(is_answered, world, FAR, POD1)
        assert not await enforcer.audit(deep=True), "our own writes are as we left them"
        world.node.run("nft", "flush", "chain", "ip", "nodewright-policy", "ingress")
        assert await enforcer.audit(deep=False)
        await enforcer.sync()
        assert not await asyncio.to_thread(is_answered, world, "client", POD1)
        world.node.run("nft", "flush", "map", "ip", "nodewright-policy", "ingress")
        assert await enforcer.audit(deep=True)
        await enforcer.sync()
        assert not await asyncio.to_thread(is_answered, world, "client", POD1)
        world.node.run("nft", "flush", "chain", "ip", "nodewright-policy", "stray")
        fill(enforcer, policies=[policy("more", select={"app": "two"})], namespaces=SPACES)
        await enforcer.sync()
        assert await enforcer.audit(deep=False), "a write of ours to other chains does not hide it"
        await enforcer.sync()
        assert not await enforcer.audit(deep=True)
        await enforcer.remove()
        assert await asyncio.to_thread(is_answered, world, "client", POD1)

    asyncio.run(scenario())


def test_the_kernel_takes_what_somebody_writes_to_stop_the_rules_of_the_node(world: PolicyWorld) -> None:
    """An address that two pods claim made it refuse everything; the product and the exceptions took minutes."""
    claims = pod("claims", FAR, V6[FAR], namespace="c")
    networks = [f"10.{number >> 15}.{number >> 7 & 255}.{(number & 127) * 2}/32" for number in range(20_000)]
    entries = [
        {"from": [block(one) for one in networks[:1000]], "ports": [{"port": f"p{one}"} for one in range(1000)]},
        {"from": [block("10.0.0.0/8", *networks)]},
    ]
    ingress = [{"from": [apps("one")]}]
    policies = [policy("large", namespace="c", ingress=entries), policy("far", namespace="b", ingress=ingress)]
    began = time.monotonic()
    world.apply([*PODS, claims], [*policies, policy(select=ONE)], {**SPACES, "c": {}})
    assert time.monotonic() - began < 20
    assert not is_answered(world, POD2, POD1), "the rules of others are in force"
    world.apply(PODS, [], SPACES)


HEARS = """
import select, socket, sys, time
heard = [socket.socket(family, socket.SOCK_DGRAM) for family in (socket.AF_INET, socket.AF_INET6)]
heard[1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
for one in heard:
    one.bind(("", 9))
print("READY", flush=True)
end = time.monotonic() + 20
while time.monotonic() < end:
    for one in select.select(heard, (), (), 1)[0]:
        print(one.recv(100).decode(), flush=True)
"""
_SAYS = """
import socket, sys, time
for turn in range(3):
    for to in sys.argv[1:]:
        try:
            (family, kind, _, _, place), *_ = socket.getaddrinfo(to, 9, type=socket.SOCK_DGRAM)
            one = socket.socket(family, kind)
            if family == socket.AF_INET:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            one.sendto(to.encode(), place)
        except OSError as error:
            print(to, error)
    time.sleep(0.1)
"""


@pytest.mark.parametrize("isolated", [False, True])
def test_an_isolated_pod_hears_nothing_by_addresses_that_are_not_its_own(world: PolicyWorld, isolated: bool) -> None:
    """Those of all, of a group and of the link, which every pod has and can be reached by without any right."""
    world.apply(PODS, [policy(select=ONE), policy("end", select=ONE, ingress=[{"from": [namespaces(team="blue")]}])]
                if isolated else [], SPACES)  # fmt: skip
    shown = world.pods[POD1].run("ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link").stdout
    link = shown.split("inet6 ")[1].split("/")[0]
    listener = world.pods[POD1].start(sys.executable, "-IS", "-c", HEARS, stdout=subprocess.PIPE)
    assert listener.stdout is not None and listener.stdout.readline() == b"READY\n"
    stray = ["224.0.0.1", "255.255.255.255", "10.244.0.255", "ff02::1%eth0", f"{link}%eth0"]
    assert not world.pods[POD2].run(sys.executable, "-c", _SAYS, *stray, POD1, V6[POD1]).stdout
    world.pods[FAR].run(sys.executable, "-c", _SAYS, POD1)
    end = 3 if isolated else 3 * (len(stray) + 3)
    heard = [listener.stdout.readline().decode().strip() for _ in range(end)]
    listener.kill()
    assert set(heard) == ({POD1} if isolated else {*stray, POD1, V6[POD1]})
    world.apply(PODS, [], SPACES)


SEND_FRAMES = """
import socket, sys
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
sock.bind(("eth0", 0))
for text in sys.argv[1:]:
    sock.send(bytes.fromhex(text))
"""


def test_a_pod_sends_nothing_under_the_address_of_another(world: PolicyWorld) -> None:
    """CAP_NET_RAW is a default: who pretended to be a pod that no policy isolates left the policies behind."""
    own = hardware_address(ip_address(POD1))
    world.pods[POD1].run("ip", "link", "set", "eth0", "address", own)
    gateway = mac_of(world.node, "br0")
    listener = world.client.start(sys.executable, "-IS", "-c", HEARS, stdout=subprocess.PIPE)
    assert listener.stdout is not None and listener.stdout.readline() == b"READY\n"

    def sent(source: str, payload: bytes) -> str:
        frame = udp(gateway, own, (source, CLIENT), payload)
        return frame.replace("00070007", "00070009", 1)

    async def scenario() -> None:
        enforcer = world.enforcer()
        fill(enforcer, PODS, [policy(policyTypes=["Egress"], select={"app": "nobody"})], SPACES)
        enforcer.hold(Name("a", "one"), "uid-one", (ip_address(POD1), ip_address(V6[POD1])))
        enforcer.start()
        await enforcer.sync()
        assert not await enforcer.audit(deep=True), "the kernel has what was written"
        frames = [sent(one, b"forged") for one in (POD2, "10.244.0.99", "192.0.2.9")] + [sent(POD1, b"own")]
        await asyncio.to_thread(world.pods[POD1].run, sys.executable, "-IS", "-c", SEND_FRAMES, *frames)

    asyncio.run(scenario())
    assert listener.stdout.readline() == b"own\n"
    assert "0a:58" in world.node.run("nft", "list", "set", "ip", "nodewright-policy", "senders").stdout
    assert is_answered(world, POD1, POD2) and world.ask(POD1, V6[POD2], 8080, 1, timeout=3) != DROPPED
    (outcome,) = world.traced(Packet(POD1, POD2, 8080, "tcp", "br0"))
    assert outcome.verdict == "ACCEPT"
    listener.kill()
    world.apply(PODS, [], SPACES)


@pytest.mark.parametrize("case", CASES[:8], ids=[one.name for one in CASES[:8]])
def test_trace_says_of_the_kernel_s_rules_what_packets_meet(world: PolicyWorld, case: Case) -> None:
    world.apply(case.pods, case.policies, SPACES)
    for (who, to), passes in case.asks.items():
        source, link = (CLIENT, "out0") if who == "client" else (who, "br0")
        if who == "node" or who == to:
            continue
        (outcome,) = world.traced(Packet(source, to, 8080, "tcp", link))
        assert (outcome.verdict == "ACCEPT") is passes, (who, to)
        if not passes:
            said = reason(outcome.trail[-1], Facts())
            assert "isolated by a/p" in said and "(ingress)" in said, said
        elif case.policies and to == POD1:
            why = [reason(hop, Facts()) for hop in outcome.trail if decides(hop)]
            assert any(one.startswith("NetworkPolicy a/p ingress[") for one in why), (who, to, why)
