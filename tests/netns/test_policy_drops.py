"""Refused packets of the real kernel become drops: who, where to, by which policies, what would allow it.

The world is that of test_policy_packets.py; the daemon's own reader listens in the node's network namespace.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cni.edge.netns import in_namespace
from nodelib.clock import SystemClock
from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.netlink import netfilter
from nodelib.tasks import cancel_and_wait
from policy.drops.edge import Refusals
from policy.drops.log import DropLog
from policy.drops.model import Drop
from policy.drops.plan.document import End, ReportedDrop, reported_drops
from policy.drops.refused import RefusedCounts
from policy.model import Direction, Name
from policy.plan import layout, parse
from policy.plan.directory import Directory
from tests.builders.cluster_policies import cluster_policy, egress, nodes, pods
from tests.builders.policies import apps, namespaces, policy
from tests.netns.policy_world import PolicyWorld, fill, fill_cluster
from tests.netns.proxy_world import PEER
from tests.netns.test_cluster_policy_packets import NODES
from tests.netns.test_policy_packets import ONE, PODS, SPACES, V6
from tests.netns.test_proxy_packets import CLIENT, FAR, NODE, POD1, POD2
from tests.waiting import until

pytestmark = pytest.mark.netns

_LIMIT = 10.0  # seconds
_ECHO = """import socket, sys
raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
raw.sendto(bytes.fromhex("0800f7fd00010001"), (sys.argv[1], 0))
"""


class Listening:
    """The parts of the daemon that make drops of packets."""

    def __init__(self, world: PolicyWorld) -> None:
        self.world, self.enforcer = world, world.enforcer()
        self.directory = Directory("node1")
        self.seen: list[Drop] = []
        self.came = self.lost = 0
        self.refusals = self.reader()
        programs: Any = lambda: self.enforcer.programs  # noqa: E731
        self.log = DropLog(self.directory, programs, self, lambda: self.refusals.problem, SystemClock())
        self.counts = RefusedCounts({family: world.table(family) for family in Family}, programs)

    def reader(self) -> Refusals:
        def connect() -> socket.socket:
            with open(f"/proc/{self.world.node.pid}/ns/net") as file:
                return in_namespace(file.fileno(), netfilter.connect)

        return Refusals(layout.REPORTS, SystemClock(), self.counted, connect=connect)

    def refused(self, drop: Drop) -> None:
        self.seen.append(drop)

    def counted(self, came: int, lost: int) -> None:
        self.came += came
        self.lost += lost

    async def write(self, policies: list[Json], cluster: Iterable[Json] = ()) -> None:
        for name, labels in SPACES.items():
            self.directory.set_namespace(name, labels)
        for obj in PODS:
            one = parse.pod(obj)
            self.directory.set_pod(one.name, one)
        for obj in policies:
            found, _ = parse.policy(obj)
            self.directory.set_policy(found.name, found)
        fill(self.enforcer, PODS, policies, SPACES)
        fill_cluster(self.enforcer, cluster)
        self.enforcer.start()
        await self.enforcer.sync()

    async def ask(self, who: str, to: str, port: int = 8080, kind: str = "tcp") -> None:
        argv = (sys.executable, "-S", PEER, "ask", kind, to, str(port), "1")
        space = {"client": self.world.client}.get(who) or self.world.pods[who]
        env = {**os.environ, "PEER_TIMEOUT": "0.3"}
        await asyncio.to_thread(lambda: space.run(*argv, env=env, check=False))

    async def drops(self) -> tuple[ReportedDrop, ...]:
        return reported_drops(await self.log.answer({"about": "drops"}))

    async def dropped(self, fits: Callable[[ReportedDrop], bool]) -> ReportedDrop:
        async def found() -> ReportedDrop | None:
            return next((one for one in await self.drops() if fits(one)), None)

        one: ReportedDrop = await until(found, _LIMIT)
        return one


@pytest.fixture(scope="module")
def world() -> Iterator[PolicyWorld]:
    one = PolicyWorld()
    yield one
    one.close()


@asynccontextmanager
async def listening(world: PolicyWorld, *policies: Json, cluster: Iterable[Json] = ()) -> AsyncIterator[Listening]:
    one = Listening(world)
    await one.write(list(policies), cluster)
    task = asyncio.create_task(one.refusals.run(one.log.take))

    async def ready() -> bool:
        return not one.refusals.problem

    try:
        await until(ready, _LIMIT)
        yield one
    finally:
        await cancel_and_wait(task)
        await one.enforcer.remove()


@pytest.mark.parametrize("version", [4, 6])
async def test_a_refused_connection_names_pods_port_policy_and_rule(world: PolicyWorld, version: int) -> None:
    rules = [{"from": [apps("three")], "ports": [{"port": 8080}]}, {"from": [namespaces(team="red")]}]
    async with listening(world, policy("web", select=ONE, ingress=rules)) as one:
        source, target = (POD2, POD1) if version == 4 else (V6[FAR], V6[POD1])
        await one.ask(POD2 if version == 4 else FAR, target, 8080)
        if version == 4:
            await one.ask(FAR, target, 8080)
            source = FAR
        drop = await one.dropped(lambda seen: seen.server.address == target)
    assert (drop.client, drop.server) == (End(source, "b/far"), End(target, "a/one"))
    assert (drop.direction, drop.port_words, drop.policies) == ("Ingress", "8080/TCP", ("a/web",))
    assert drop.remedy == "a/web ingress[0], if it selected the peer"
    assert drop.why == (("a/web", "ingress[0] allows 8080/TCP, but only from pods app=three of namespace a"),)


async def test_egress_a_client_outside_and_a_packet_without_ports(world: PolicyWorld) -> None:
    out = policy("out", select={"app": "two"}, policyTypes=["Egress"], egress=[{"to": [apps("one")]}])
    async with listening(world, policy("deny", select=ONE), out) as one:
        await one.ask(POD2, FAR, 53, "udp")
        await one.ask("client", POD1)
        await asyncio.to_thread(lambda: world.pods[POD2].run(sys.executable, "-S", "-c", _ECHO, FAR))
        dns = await one.dropped(lambda seen: seen.protocol == "UDP")
        outside = await one.dropped(lambda seen: seen.client.address == CLIENT)
        ping = await one.dropped(lambda seen: seen.protocol == "ICMP")
    assert (dns.direction, dns.client.pod, dns.server, dns.port_words) == (
        "Egress",
        "a/two",
        End(FAR, "b/far"),
        "53/UDP",
    )
    assert dns.remedy == "a/out egress[0], if it selected the peer"
    assert (outside.client.pod, outside.policies) == ("", ("a/deny",))
    assert outside.remedy == "an ingress rule in a/deny for this peer and port 8080/TCP"
    assert (ping.port_words, ping.server.pod) == ("ICMP", "b/far")


async def test_a_rule_of_a_cluster_network_policy_that_denies_is_named_and_counted(world: PolicyWorld) -> None:
    rules = [egress("Deny", pods("far"), name="no-far"), egress("Deny", nodes(), name="no-node")]
    out = cluster_policy("out", subject=pods("two"), egress=rules)
    async with listening(world, cluster=(out, *NODES)) as one:
        await one.ask(POD2, FAR)
        await one.ask(POD2, NODE)
        pod = await one.dropped(lambda seen: seen.server.address == FAR)
        node = await one.dropped(lambda seen: seen.server.address == NODE)
        counts = await one.counts.more()
    assert (pod.direction, pod.client.pod, pod.denied) == (
        "Egress",
        "a/two",
        "ClusterNetworkPolicy: Admin egress[0] of out no-far",
    )
    assert node.denied == "ClusterNetworkPolicy: Admin egress[1] of out no-node"
    assert set(counts) == {
        (Name("", f"Admin egress[{n}] of out no-{what}"), Direction.EGRESS) for n, what in ((0, "far"), (1, "node"))
    }


async def test_a_flow_that_is_no_longer_allowed_is_one_drop_whichever_way_its_packets_go(world: PolicyWorld) -> None:
    async with listening(world) as one:
        stream = await asyncio.to_thread(world.stream, POD2, POD1, 8080)
        output = stream.stdout
        assert output is not None
        assert await asyncio.to_thread(output.readline, -1)
        await one.write([policy("deny", select=ONE)])
        drop = await one.dropped(lambda seen: seen.count > 2)
        await asyncio.to_thread(output.read, -1)
        stream.wait()
        every = await one.drops()
    assert (drop.client.pod, drop.server.pod, drop.port) == ("a/two", "a/one", 8080)
    assert len(every) == 1, every


async def test_the_same_flow_counts_up_and_a_follower_hears_of_it(world: PolicyWorld) -> None:
    async with listening(world, policy("deny", select=ONE)) as one:
        await one.ask(POD2, POD1)
        first = await one.dropped(lambda seen: True)
        number = max(seen.number for seen in await one.drops())
        waiting = asyncio.create_task(one.log.answer({"about": "drops", "after": number, "wait": True}))
        await one.ask(POD2, POD1)
        (again,) = reported_drops(await asyncio.wait_for(waiting, _LIMIT))
    assert again.count > first.count and again.client == first.client
    assert one.seen[0].near, "who writes events is told of an explained drop"


async def test_a_flood_is_counted_whole_and_reported_in_part(world: PolicyWorld) -> None:
    async with listening(world, policy("deny", select=ONE)) as one:
        await asyncio.to_thread(flood, world, 20_000)
        drop = await one.dropped(lambda seen: seen.port == 9)
        counted = await asyncio.to_thread(refused, world)
        counts = await one.counts.more()
        assert counts[Name("a", "deny"), Direction.INGRESS] == counted > 5000
        assert await one.counts.more() == {}, "the next time it tells only what is new"
        assert drop.count < counted / 10 and one.came < counted / 10 and one.lost == 0


async def test_reports_that_nobody_read_are_counted_as_lost_and_reading_goes_on(world: PolicyWorld) -> None:
    """The kernel is asked to report everything, into a socket of the smallest size, while nobody reads."""
    async with listening(world, policy("deny", select=ONE)) as one:
        await one.ask(POD2, POD1)
        await one.dropped(lambda seen: True)
        run = world.node.run
        listed = run("nft", "-a", "list", "chain", "ip", layout.TABLE, _group(world)).stdout
        line = next(text for text in listed.splitlines() if " log " in text)
        handle, prefix = line.rpartition(" ")[2], line.partition('prefix "')[2].partition('"')[0]
        where = ("ip", layout.TABLE, prefix, "handle", handle)
        run("nft", "replace", "rule", *where, "log", "prefix", prefix, "group", str(layout.REPORTS), "snaplen", "128")
        await asyncio.to_thread(flood, world, 100_000)
        counted = await asyncio.to_thread(refused, world)

        async def all_of_them() -> bool:
            await one.ask(POD2, POD1)  # the kernel says with the next report what was lost before it
            return one.came + one.lost >= counted

        await until(all_of_them, 2 * _LIMIT)
        assert one.lost > 0 and not one.refusals.problem


async def test_who_comes_second_says_so_and_takes_over_when_the_first_is_gone(world: PolicyWorld) -> None:
    async with listening(world, policy("deny", select=ONE)) as one:
        second = one.reader()
        task = asyncio.create_task(second.run(one.log.take))

        async def refused() -> bool:
            return "another program" in second.problem

        await until(refused, _LIMIT)
        await cancel_and_wait(task)
    async with listening(world, policy("deny", select=ONE)):
        pass


def _group(world: PolicyWorld) -> str:
    chains = world.node.run("nft", "list", "chains", "ip").stdout.split()
    return next(word for word in chains if word.startswith("group-ingress-"))


def refused(world: PolicyWorld) -> int:
    """What the rule that drops has counted: of a flood the kernel loses packets before they come to any rule."""
    listed = world.node.run("nft", "list", "chain", "ip", layout.TABLE, _group(world)).stdout
    line = next(text for text in listed.splitlines() if " drop" in text)
    return int(line.partition("packets ")[2].split()[0])


def flood(world: PolicyWorld, count: int) -> None:
    """UDP packets from one pod to an isolated one."""
    code = "import socket,sys\ns=socket.socket(2,2)\nfor _ in range(int(sys.argv[2])): s.sendto(b'x',(sys.argv[1],9))"
    world.pods[POD2].run(sys.executable, "-S", "-c", code, POD1, str(count))
