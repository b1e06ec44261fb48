"""Real packets under rules with domain names: a DNS server outside, answers that are held, and what pods reach then.

The world is that of test_policy_packets.py. The client outside is the name server, and has more addresses with a web
server behind them; nothing of it is allowed but DNS and what pods have been told of the names.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import pytest

from cli.explain.facts import Facts
from cli.explain.reasons import reason
from cni.edge.netns import in_namespace
from nodelib.clock import SystemClock
from nodelib.firewall.objects import Family
from nodelib.firewall.trace import Packet
from nodelib.json_values import Json
from nodelib.netlink import netfilter
from nodelib.nft.actions import Queue
from nodelib.nft.edge import NftError
from policy.domains.edge import HeldAnswers
from policy.domains.work import Domains
from policy.enforcer import Enforcer
from policy.model import Resolvers
from policy.plan import cluster_layout, layout, parse
from policy.plan.difference import removal
from policy.plan.directory import Directory
from policy.plan.program import Planner, Program
from tests.builders.cluster_policies import cluster_policy, domains, egress, networks, pods, port
from tests.builders.dns import address, datagram, message
from tests.builders.services import endpoint, endpoint_slice, service
from tests.netns.cni_world import wait_for
from tests.netns.policy_world import PolicyWorld, fill, fill_cluster
from tests.netns.proxy_world import PEER
from tests.netns.test_cni_spoofing import mac_of
from tests.netns.test_policy_daemon import daemon as process
from tests.netns.test_policy_daemon import events
from tests.netns.test_policy_packets import DROPPED, PODS, SEND_FRAMES, SPACES, V6, is_answered
from tests.netns.test_proxy_packets import CLIENT, CONTEXT, FAR, POD1, POD2, SERVICE
from tests.unit.proxy.build import desired
from tests.waiting import until

pytestmark = pytest.mark.netns

_ROOT = Path(__file__).resolve().parents[2]
_PEER = str(Path(__file__).with_name("dns_peer.py"))
WEB = [f"203.0.113.{number}" for number in range(20, 60)]
WEB6 = "2001:db8::20"
NAMES: dict[str, list[object]] = {
    "www.example.com": [60, WEB[0], WEB6],
    "short.example.com": [0, WEB[1]],
    "alias.example.com": [60, "cdn.example.net"],
    "cdn.example.net": [60, WEB[2]],
    "evil.net": [60, "www.example.com"],
    "exact.example.org": [60, WEB[3]],
    "below.exact.example.org": [60, WEB[4]],
    "many.example.com": [60, *WEB[5:10]],
    **{f"n{number}.example.com": [60, WEB[number]] for number in range(10, 40)},
}
ANYWHERE = networks("0.0.0.0/0", "::/0")
RULES = [
    egress("Accept", networks(f"{CLIENT}/32", f"{V6[CLIENT]}/128"), protocols=[port(53, protocol="udp")]),
    egress("Accept", domains("*.example.com", "exact.example.org")),
    egress("Deny", ANYWHERE),
]
POLICY = cluster_policy("names", subject=pods("one", "two"), egress=RULES)


@pytest.fixture(scope="module")
def world() -> Iterator[PolicyWorld]:
    one = PolicyWorld()
    for number in WEB:
        one.client.run("ip", "addr", "add", f"{number}/24", "dev", "eth0")
    one.client.run("ip", "addr", "add", f"{WEB6}/64", "dev", "eth0", "nodad", "preferred_lft", "0")
    for argv in ([PEER, "serve", "tcp", "8080", "web"], [_PEER, "serve", "53", json.dumps(NAMES)]):
        env = {**os.environ, "PYTHONPATH": str(_ROOT)}
        server = one.client.start(sys.executable, "-S", *argv, stdout=subprocess.PIPE, env=env)
        assert server.stdout is not None and server.stdout.readline() == b"READY\n"
    for who in (POD1, POD2):
        wait_for("IPv6", partial(is_answered, one, who, WEB6))
    yield one
    one.close()


@pytest.fixture(scope="module")
def extension(world: PolicyWorld) -> bool:
    """Whether this kernel has only the extension of iptables for packets that are held."""

    async def refused() -> bool:
        try:
            await world.table(Family.IPV4).commit(layout.probe(Queue(1)))
        except NftError:
            return True
        return False

    return asyncio.run(refused())


class Daemon:
    """The parts of the policy daemon that domain names need, in the node's network namespace."""

    def __init__(self, world: PolicyWorld, extension: bool, floor: float, servers: tuple[str, ...]) -> None:
        self.world = world
        self.directory = Directory("node1")
        resolvers = Resolvers(tuple(map(ip_address, servers)), extension)
        tables = {family: world.table(family) for family in Family}
        planners = {family: Planner(family, "node1", report=True, resolvers=resolvers) for family in Family}
        self.domains = Domains(
            {family: world.table(family) for family in Family}, self.directory.addresses, SystemClock(), floor=floor
        )
        self.enforcer = Enforcer(tables, planners, SystemClock(), self, kept=self.domains.kept)
        self.read = 0
        self.answers = HeldAnswers(cluster_layout.QUEUE, SystemClock(), self._count, connect=self._connect)

    def _count(self) -> None:
        self.read += 1

    def _connect(self) -> socket.socket:
        with open(f"/proc/{self.world.node.pid}/ns/net") as file:
            return in_namespace(file.fileno(), netfilter.connect)

    def synced(self, seconds: float, programs: Mapping[Family, Program]) -> None:
        self.domains.synced(programs)

    def failed(self, error: Exception) -> None:
        raise AssertionError(error)

    async def reach(self, who: str, *names: str, server: str = CLIENT) -> list[str]:
        return await asyncio.to_thread(reach, self.world, who, *names, server=server)


def reach(world: PolicyWorld, who: str, *names: str, server: str = CLIENT, timeout: str = "1") -> list[str]:
    """What came of connecting to each name."""
    env = {**os.environ, "PYTHONPATH": str(_ROOT), "PEER_TIMEOUT": timeout}
    done = world.pods[who].run(sys.executable, "-S", _PEER, "reach", server, "53", *names, env=env)
    return [line.rpartition(" ")[2] for line in done.stdout.splitlines()]


@asynccontextmanager
async def daemon(
    world: PolicyWorld,
    extension: bool,
    floor: float = 30,
    cluster: tuple[Json, ...] = (POLICY,),
    servers: tuple[str, ...] = (CLIENT, V6[CLIENT]),
) -> AsyncIterator[Daemon]:
    one = Daemon(world, extension, floor, servers)
    fill(one.enforcer, PODS, [], SPACES)
    fill_pods(one.directory)
    fill_cluster(one.enforcer, cluster)
    await one.domains.load()
    one.enforcer.start()
    await one.enforcer.sync()
    task = asyncio.create_task(one.answers.run(one.domains.learn))
    try:
        await until(lambda: not one.answers.problem)
        yield one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def fill_pods(directory: Directory) -> None:
    for obj in PODS:
        pod = parse.pod(obj)
        directory.set_pod(pod.name, pod)


async def test_names_of_the_rule_are_reached_at_once_and_others_are_not(world: PolicyWorld, extension: bool) -> None:
    async with daemon(world, extension) as one:
        asked = ["www.example.com", "6:www.example.com", "alias.example.com", "exact.example.org", "WWW.Example.Com"]
        assert await one.reach(POD1, *asked) == ["web"] * 5
        refused = ["cdn.example.net", "below.exact.example.org"]
        assert await one.reach(POD2, *refused) == [DROPPED] * 2, "names that no rule has"
        assert await one.reach(POD2, "missing.example.com") == ["address"], "the server said that there is no such name"
        assert await one.reach(FAR, "cdn.example.net") == ["web"], "another pod is free"
        assert await one.reach(POD1, *[f"n{number}.example.com" for number in range(10, 40)]) == ["web"] * 30
        assert await one.reach(POD1, "6:www.example.com", server=V6[CLIENT]) == ["web"]
        assert not await one.enforcer.audit(deep=True), "what pods have learnt is nobody's foreign change"


async def test_what_one_pod_was_told_is_not_another_s(world: PolicyWorld, extension: bool) -> None:
    async with daemon(world, extension) as one:
        assert await one.reach(POD1, "www.example.com") == ["web"]
        assert await asyncio.to_thread(world.ask, POD2, WEB[0], 8080, 1, 1) == DROPPED, "it has not asked"
        assert await one.reach(POD2, "evil.net") == [DROPPED], "another name that leads to an allowed one"
        await one.domains.forget([ip_address(POD1), ip_address(V6[POD1])])
        assert await asyncio.to_thread(world.ask, POD1, WEB[0], 8080, 1, 1) == DROPPED, "its successor has not asked"
        assert await one.reach(POD1, "www.example.com") == ["web"]


async def test_a_pod_that_asks_without_end_takes_no_room_from_others(
    world: PolicyWorld, extension: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel holds so many answers of all pods, and lets go unread what finds no room."""
    monkeypatch.setattr(cluster_layout, "READ", 1)
    monkeypatch.setattr(cluster_layout, "READ_AT_ONCE", 20)
    async with daemon(world, extension) as one:
        began = time.monotonic()
        assert await one.reach(POD2, *["missing.example.com"] * 300) == ["address"] * 300, "they go on"
        assert one.read <= 21 + time.monotonic() - began < 300
        assert await one.reach(POD1, "www.example.com", "n12.example.com") == ["web"] * 2
        assert not await one.enforcer.audit(deep=True)


async def test_nobody_but_the_server_is_believed(world: PolicyWorld, extension: bool) -> None:
    """Answers that the pod did not ask for, and those of a server of its own choice."""
    async with daemon(world, extension) as one:
        forged = message("forged.example.com", address("forged.example.com", WEB[2]))
        ends = mac_of(world.pods[POD1], "eth0") + mac_of(world.pods[POD2], "eth0")
        frame = bytes.fromhex(ends.replace(":", "")) + b"\x08\x00" + checked(datagram(CLIENT, POD1, forged))
        before = one.read
        await asyncio.to_thread(world.pods[POD2].run, sys.executable, "-IS", "-c", SEND_FRAMES, frame.hex())
        other = world.pods[FAR].start(
            sys.executable, "-S", _PEER, "serve", "53", json.dumps({"forged.example.com": [60, WEB[2]]}),
            stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )  # fmt: skip
        assert other.stdout is not None and other.stdout.readline() == b"READY\n"
        free = cluster_policy("far", priority=1, egress=[egress("Accept", networks(f"{FAR}/32"))])
        fill_cluster(one.enforcer, [free])
        await one.enforcer.sync()
        assert await one.reach(POD1, "forged.example.com", server=FAR) == [DROPPED]
        assert await asyncio.to_thread(world.ask, POD1, WEB[2], 8080, 1, 1) == DROPPED
        assert one.read == before, "none of these has been looked at"
        assert await one.reach(POD1, "www.example.com") == ["web"]
        assert one.read == before + 1
        other.kill()


def checked(packet: bytes) -> bytes:
    """An IPv4 packet with the checksum of its header."""
    total = sum(int.from_bytes(packet[at : at + 2], "big") for at in range(0, 20, 2))
    total = (total & 0xFFFF) + (total >> 16)
    return packet[:10] + (~total & 0xFFFF).to_bytes(2, "big") + packet[12:]


async def test_an_expired_address_takes_no_new_connections_and_keeps_the_old_ones(
    world: PolicyWorld, extension: bool
) -> None:
    async with daemon(world, extension, floor=-4) as one:  # the grace makes it one second
        assert await one.reach(POD1, "short.example.com") == ["web"]
        kept = world.stream(POD1, WEB[1], 8080)
        assert kept.stdout is not None and kept.stdout.readline() == b"READY\n"

        async def expired() -> bool:
            return await asyncio.to_thread(world.ask, POD1, WEB[1], 8080, 1, 0.3) == DROPPED

        await until(expired)
        more = cluster_policy("more", priority=9, egress=[egress("Deny", networks("192.0.2.0/24"))])
        fill_cluster(one.enforcer, [more])
        await one.enforcer.sync()
        assert kept.poll() is None and kept.stdin is not None
        kept.stdin.close()
        assert kept.stdout.read().startswith(b"ok")
        assert await one.reach(POD1, "short.example.com") == ["web"], "asked again, it is allowed again"
        for policy in ("names", "more"):
            one.enforcer.set_cluster_policy(policy, None)
        await one.enforcer.sync()
        fill_cluster(one.enforcer, [cluster_policy("names", subject=pods("one"), egress=[RULES[0], RULES[2]])])
        await one.enforcer.sync()
        assert await expired(), "a rule that is gone has taken its addresses along"


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
async def test_the_cluster_s_dns_is_a_service_of_pods(world: PolicyWorld, extension: bool, mode: str) -> None:
    """What the pod has asked is the Service; what answers is a pod of the same bridge, by another port."""
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    slices = endpoint_slice("d", [endpoint(FAR, node="node1")], ports=[{**ports[0], "port": 5353}])
    server = world.pods[FAR].start(
        sys.executable, "-S", _PEER, "serve", "5353", json.dumps(NAMES), stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(_ROOT)},
    )  # fmt: skip
    assert server.stdout is not None and server.stdout.readline() == b"READY\n"
    allowed = [egress("Accept", pods("far")), *RULES[1:]]
    backend = world.backend(mode, CONTEXT)
    try:
        await backend.sync(desired(service("d", SERVICE, ports=ports), slices, node="node1"), None)
        cluster = (cluster_policy("names", subject=pods("one"), egress=allowed),)
        async with daemon(world, extension, cluster=cluster, servers=(SERVICE,)) as one:
            assert await one.reach(POD1, "n30.example.com", "n31.example.com", server=SERVICE) == ["web"] * 2
            assert await one.reach(POD1, "cdn.example.net", server=SERVICE) == [DROPPED]
            (outcome,) = world.traced(Packet(POD1, WEB[30], 8080, "tcp", "br0"))
            assert outcome.verdict == "ACCEPT"
            assert "ClusterNetworkPolicy names accepts it (Admin tier, egress[1])" in [
                reason(hop, Facts()) for hop in outcome.trail
            ]
            await one.enforcer.remove()
    finally:
        await backend.cleanup()
        server.kill()


async def test_without_a_daemon_dns_goes_on_and_what_was_learnt_holds(world: PolicyWorld, extension: bool) -> None:
    async with daemon(world, extension) as one:
        assert await one.reach(POD1, "www.example.com", "many.example.com") == ["web", "web"]
    assert reach(world, POD1, "www.example.com", "alias.example.com") == ["web", DROPPED], "nobody learns"
    async with daemon(world, extension) as one:
        assert one.domains.memory.count == 6
        assert await asyncio.to_thread(world.ask, POD1, WEB[0], 8080, 1) == "web 10.244.0.11", "no gap at its start"
        assert await one.reach(POD1, "alias.example.com") == ["web"]
        world.node.run("nft", "flush", "ruleset")
        assert await one.enforcer.audit(deep=True)
        await one.enforcer.sync()
        assert await asyncio.to_thread(world.ask, POD1, WEB[0], 8080, 1) == "web 10.244.0.11"
        await one.enforcer.remove()


async def test_a_killed_daemon_neither_stops_dns_nor_what_was_learnt(world: PolicyWorld, tmp_path: Path) -> None:
    """The whole daemon as a process, which ends by SIGKILL."""
    flags = (f"--cluster-dns={CLIENT},{V6[CLIENT]}",)
    await gone(world)
    for turn in range(2):
        async with process(world, tmp_path, cluster=[POLICY], more=flags) as (api, _):
            if turn:
                assert await asyncio.to_thread(_asked, world, WEB[0]) == "web 10.244.0.11", "learnt before the kill"
            else:
                assert await asyncio.to_thread(_asked, world, WEB[0]) == DROPPED

            async def learns() -> bool:
                return await asyncio.to_thread(reach, world, POD1, "www.example.com", "n20.example.com") == ["web"] * 2

            await until(learns)
            assert not events(api, "PartNotUnderstood")
        assert reach(world, POD1, "www.example.com", "n21.example.com") == ["web", DROPPED]
        (tmp_path / "policy.sock").unlink()
    await gone(world)


async def gone(world: PolicyWorld) -> None:
    """No table is left, and with it nothing that was learnt."""
    for family in Family:
        await world.table(family).commit(removal())


def _asked(world: PolicyWorld, to: str) -> str:
    return world.ask(POD1, to, 8080, 1, 1)


async def test_an_answer_that_cannot_be_written_in_time_goes_on(
    world: PolicyWorld, extension: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("policy.domains.work.HELD", 0.2)
    async with daemon(world, extension) as one:
        may = asyncio.Event()

        class Slow:
            async def commit(self, batch: object) -> None:
                await may.wait()

        one.domains._tables = dict.fromkeys(Family, Slow())  # type: ignore[assignment,arg-type]
        assert await one.reach(POD1, "n22.example.com") == [DROPPED]
        may.set()
        await one.enforcer.remove()
