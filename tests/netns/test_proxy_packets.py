"""Real packets through real rules, in each kernel mode: which server answers, and which client address it sees.

Addresses: the node 10.244.0.1 and fd00:244::1 towards its pods, 203.0.113.1 and 2001:db8::1 towards the outside; pods
.11 and .12 are endpoints on this node; pod .13 stands for one on another node; a client outside .9.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cni.edge.netns import in_namespace
from nodelib import command
from nodelib.command import Completed
from nodelib.firewall.iptables import Iptables
from nodelib.firewall.objects import Family
from nodelib.firewall.variant import Variant
from nodelib.json_values import Json
from nodelib.netlink import netfilter
from nodelib.nft.edge import NftTable
from proxy.backends.base import Backend
from proxy.backends.context import NodeContext
from proxy.backends.iptables import IptablesBackend
from proxy.backends.nftables import NftablesBackend
from proxy.plan.context import Context, LocalDetector, by_cidr, by_interface
from proxy.plan.nftables.layout import TABLE
from tests.builders.services import endpoint, endpoint_slice, service
from tests.netns.cni_world import Namespace
from tests.netns.proxy_world import PEER
from tests.unit.proxy.build import desired

pytestmark = pytest.mark.netns

POD1, POD2, FAR = "10.244.0.11", "10.244.0.12", "10.244.0.13"
NODE, OUTSIDE, CLIENT = "10.244.0.1", "203.0.113.1", "203.0.113.9"
SERVICE, EXTERNAL, BALANCER = "10.96.0.10", "198.51.100.5", "198.51.100.6"
HERE: Json = {"node": "node1"}
AWAY: Json = {"node": "node2"}
CONTEXT = Context(
    node="node1",
    node_ip=OUTSIDE,
    detector=by_cidr("10.244.0.0/16"),
    localhost_node_ports=False,
    node_port_ips=(OUTSIDE,),
)
PORTS = [{"name": "p80", "port": 80, "protocol": "TCP", "nodePort": 30080}]


class World:
    """A node with a bridge, three pods and a client outside; dual-stack."""

    def __init__(self) -> None:
        self.node = Namespace()
        self._spaces = [self.node]
        run = self.node.run
        run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge")
        self._addresses(self.node, "br0", "10.244.0.1/24", "fd00:244::1/64")
        self.pods = {address: self._pod(number) for number, address in ((11, POD1), (12, POD2), (13, FAR))}
        self.client = self._space("out0")
        self._addresses(self.node, "out0", OUTSIDE + "/24", "2001:db8::1/64")
        self._addresses(self.client, "eth0", CLIENT + "/24", "2001:db8::9/64")
        for gateway in (OUTSIDE, "2001:db8::1"):
            self.client.run("ip", "route", "add", "default", "via", gateway)
        for gateway in (CLIENT, "2001:db8::9"):
            run("ip", "route", "add", "default", "via", gateway)

    def close(self) -> None:
        for space in reversed(self._spaces):
            space.close()

    def _space(self, link: str) -> Namespace:
        space = Namespace()
        self._spaces.append(space)
        self.node.run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", str(space.pid))
        space.run("ip", "link", "set", "lo", "up")
        return space

    def _pod(self, number: int) -> Namespace:
        space = self._space(f"p{number}")
        self.node.run("ip", "link", "set", f"p{number}", "master", "br0", "up")
        self.node.run("bridge", "link", "set", "dev", f"p{number}", "hairpin", "on")
        self._addresses(space, "eth0", f"10.244.0.{number}/24", f"fd00:244::{number}/64")
        for gateway in (NODE, "fd00:244::1"):
            space.run("ip", "route", "add", "default", "via", gateway)
        server = space.start(
            sys.executable, "-IS", PEER, "serve", "tcp", "8080", f"pod{number}", stdout=subprocess.PIPE
        )
        assert server.stdout is not None and server.stdout.readline() == b"READY\n"
        return space

    @staticmethod
    def _addresses(space: Namespace, link: str, *addresses: str) -> None:
        space.run("ip", "link", "set", link, "up")
        for address in addresses:
            space.run("ip", "addr", "add", address, "dev", link, *(("nodad",) if ":" in address else ()))

    def backend(self, mode: str, ctx: Context) -> Backend:
        async def run(argv: Any, **more: Any) -> Completed:
            return await command.run(self.node.argv(*argv), **more)

        def connect() -> socket.socket:
            with open(f"/proc/{self.node.pid}/ns/net") as file:
                return in_namespace(file.fileno(), netfilter.connect)

        facts = NodeContext(ctx)
        if mode == "nftables":
            return NftablesBackend(NftTable(ctx.family, TABLE, run=run, connect=connect), facts)
        return IptablesBackend(Iptables(ctx.family, Variant("nft"), run=run), facts)

    def ask(self, who: str, to: str, port: int, count: int, timeout: float = 3) -> str:
        """Names of the pods that answered with the addresses they saw, or the error; each once, sorted."""
        space = {"client": self.client, "node": self.node}.get(who) or self.pods[who]
        env = {**os.environ, "PEER_TIMEOUT": str(timeout)}
        argv = (sys.executable, "-S", PEER, "ask", "tcp", to, str(port), str(count))
        return ", ".join(sorted(set(space.run(*argv, env=env).stdout.splitlines())))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    one = World()
    yield one
    one.close()


@dataclass(frozen=True)
class Case:
    """`asks`: (who, to, port) -> what is answered; {mode: …} where the modes differ."""

    name: str
    objects: tuple[Json, ...]
    asks: dict[tuple[str, str, int], str]
    ctx: Context = field(default=CONTEXT)


def balanced(*endpoints: Json, **spec: Any) -> tuple[Json, ...]:
    obj = service("s", SERVICE, type="LoadBalancer", ports=PORTS, externalIPs=[EXTERNAL], lb=[BALANCER], **spec)
    ready = endpoint_slice("s", endpoints, ports=[{"name": "p80", "port": 8080, "protocol": "TCP"}])
    return (obj, ready)


ONE, TWO, REMOTE = endpoint(POD1, **HERE), endpoint(POD2, **HERE), endpoint(FAR, **AWAY)
GONE: Json = {"ready": False, "serving": True, "terminating": True}
REFUSED, DROPPED = "ConnectionRefusedError", "TimeoutError"
CASES = [
    Case(
        "every door",
        balanced(ONE, TWO),
        {
            (FAR, SERVICE, 80): f"pod11 {FAR}, pod12 {FAR}",
            ("node", SERVICE, 80): f"pod11 {NODE}, pod12 {NODE}",
            ("client", SERVICE, 80): f"pod11 {NODE}, pod12 {NODE}",
            ("client", OUTSIDE, 30080): f"pod11 {NODE}, pod12 {NODE}",
            ("client", EXTERNAL, 80): f"pod11 {NODE}, pod12 {NODE}",
            ("client", BALANCER, 80): f"pod11 {NODE}, pod12 {NODE}",
            (FAR, OUTSIDE, 30080): f"pod11 {NODE}, pod12 {NODE}",
        },
    ),
    Case("hairpin", balanced(ONE), {(POD1, SERVICE, 80): f"pod11 {NODE}", (POD1, OUTSIDE, 30080): f"pod11 {NODE}"}),
    Case(
        "external policy Local",
        balanced(ONE, REMOTE, externalTrafficPolicy="Local"),
        {
            ("client", OUTSIDE, 30080): f"pod11 {CLIENT}",
            ("client", BALANCER, 80): f"pod11 {CLIENT}",
            (POD2, OUTSIDE, 30080): f"pod11 {POD2}, pod13 {POD2}",
            ("node", OUTSIDE, 30080): f"pod11 {NODE}, pod13 {NODE}",
            (POD2, SERVICE, 80): f"pod11 {POD2}, pod13 {POD2}",
        },
    ),
    Case(
        "external policy Local, nobody here",
        balanced(REMOTE, externalTrafficPolicy="Local"),
        {
            ("client", OUTSIDE, 30080): DROPPED,
            ("client", EXTERNAL, 80): DROPPED,
            (POD2, BALANCER, 80): f"pod13 {POD2}",
        },
    ),
    Case(
        "internal policy Local",
        balanced(ONE, REMOTE, internalTrafficPolicy="Local"),
        {(POD2, SERVICE, 80): f"pod11 {POD2}", ("client", EXTERNAL, 80): f"pod11 {NODE}, pod13 {NODE}"},
    ),
    Case(
        "internal policy Local, nobody here",
        balanced(REMOTE, internalTrafficPolicy="Local"),
        {(POD2, SERVICE, 80): DROPPED, ("client", EXTERNAL, 80): f"pod13 {NODE}"},
    ),
    Case(
        "no endpoints",
        balanced(),
        {(POD1, SERVICE, 80): REFUSED, ("node", SERVICE, 80): REFUSED, ("client", OUTSIDE, 30080): REFUSED},
    ),
    Case(
        "one terminates, it alone serves",
        balanced(endpoint(POD1, **HERE, **GONE), endpoint(POD2, "node1", ready=False)),
        {(FAR, SERVICE, 80): f"pod11 {FAR}"},
    ),
    Case(
        "source ranges",
        balanced(ONE, loadBalancerSourceRanges=["203.0.113.9/32", "203.0.113.0/28"]),
        {
            ("client", BALANCER, 80): f"pod11 {NODE}",
            (POD2, BALANCER, 80): DROPPED,
            (POD2, EXTERNAL, 80): f"pod11 {NODE}",
        },
    ),
    Case(
        "masquerade all",
        balanced(ONE),
        {(POD2, SERVICE, 80): f"pod11 {NODE}"},
        replace(CONTEXT, masquerade_all=True),
    ),
    Case(
        "local traffic recognized by the bridge",
        balanced(ONE),
        {(POD2, SERVICE, 80): f"pod11 {POD2}", ("client", SERVICE, 80): f"pod11 {NODE}"},
        replace(CONTEXT, detector=by_interface("br0")),
    ),
    Case(
        "local traffic recognized by a prefix",
        balanced(ONE),
        {(POD2, SERVICE, 80): f"pod11 {POD2}", ("client", SERVICE, 80): f"pod11 {NODE}"},
        replace(CONTEXT, detector=by_interface("br+")),
    ),
    Case(
        "local traffic cannot be recognized",
        balanced(ONE),
        {("client", SERVICE, 80): f"pod11 {CLIENT}"},
        replace(CONTEXT, detector=LocalDetector()),
    ),
    Case(
        "NodePorts on another address",
        balanced(ONE),
        {("client", OUTSIDE, 30080): REFUSED, ("client", NODE, 30080): f"pod11 {NODE}"},
        replace(CONTEXT, node_port_ips=(NODE,)),
    ),
]


def six() -> Case:
    ports = [{"name": "p80", "port": 8080, "protocol": "TCP"}]
    where = [endpoint(f"fd00:244::{number}", "node1") for number in (11, 12)]
    objects = (
        service("s", "fd00:96::10", type="NodePort", ports=PORTS),
        endpoint_slice("s", where, ports=ports, address_type="IPv6"),
        service("sticky", "fd00:96::11", sessionAffinity="ClientIP"),
        endpoint_slice("sticky", where[:1], ports=ports, address_type="IPv6"),
        service("none", "fd00:96::12"),
    )
    ctx = Context(
        Family.IPV6, "node1", node_ip="2001:db8::1", detector=by_cidr("fd00:244::/64"), node_port_ips=("2001:db8::1",)
    )
    pod, node = "fd00:244::13", "fd00:244::1"
    return Case(
        "IPv6",
        objects,
        {
            (FAR, "fd00:96::10", 80): f"pod11 {pod}, pod12 {pod}",
            ("client", "2001:db8::1", 30080): f"pod11 {node}, pod12 {node}",
            (POD1, "fd00:96::11", 80): f"pod11 {node}",
            ("node", "fd00:96::12", 80): REFUSED,
            (POD2, "fd00:96::12", 80): REFUSED,
        },
        ctx,
    )


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
@pytest.mark.parametrize("case", [*CASES, six()], ids=lambda case: case.name)
async def test_packets(case: Case, mode: str, world: World) -> None:
    backend = world.backend(mode, case.ctx)
    try:
        await backend.sync(desired(*case.objects, family=case.ctx.family, node="node1"), None)
        found = {}
        for ask, answer in case.asks.items():
            # Over IPv6 a refusal may reach the socket only when it tries again, after a second.
            found[ask] = world.ask(*ask, 12 if "," in answer else 1, 0.7 if answer == DROPPED else 3)
        assert found == case.asks
    finally:
        await backend.cleanup()


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
async def test_affinity_lasts_as_long_as_it_should(mode: str, world: World) -> None:
    backend = world.backend(mode, CONTEXT)
    sticky = {"sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 2}}}
    try:
        await backend.sync(desired(*balanced(ONE, TWO, **sticky)), None)
        for who, to, port in ((FAR, SERVICE, 80), ("client", OUTSIDE, 30080)):
            assert "," not in world.ask(who, to, port, 12), "one endpoint for all"
        seen = set()
        for _ in range(12):  # a new choice every time it has run out
            seen.add(world.ask(FAR, SERVICE, 80, 1))
            if len(seen) == 2:
                break
            world.node.run("sleep", "2.3")
        assert seen == {f"pod11 {FAR}", f"pod12 {FAR}"}
        kept = next(iter({world.ask(FAR, SERVICE, 80, 1)}))
        left = TWO if kept.startswith("pod11") else ONE
        world_after = desired(*balanced(left, **sticky))
        await backend.sync(world_after, frozenset(world_after.ports))
        await backend.forget_clients()
        assert world.ask(FAR, SERVICE, 80, 3) != kept, "an endpoint that is gone is forgotten at once"
    finally:
        await backend.cleanup()
