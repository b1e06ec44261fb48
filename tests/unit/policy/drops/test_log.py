"""Reported packets on their way to drops: names, groups that are gone, followers that wait."""

from __future__ import annotations

import asyncio

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.netlink import nflog
from policy.drops.log import DropLog
from policy.drops.model import Drop
from policy.drops.plan.document import ReportedDrop, reported_drops
from policy.model import Name
from policy.plan import parse
from policy.plan.directory import Directory
from policy.plan.program import Program
from tests.builders.cluster_policies import cluster_policy, ingress
from tests.builders.packets import SYN_ACK, packet, report
from tests.builders.policies import apps, pod, policy
from tests.fakes.clock import FakeClock
from tests.unit.policy.test_cluster_program import planned as planned_cluster
from tests.unit.policy.world import planned

A, B = "10.0.0.1", "10.0.0.2"
PODS = [pod("a1", A), pod("a2", B)]


class World:
    def __init__(self, *policies: Json, cluster: tuple[Json, ...] = ()) -> None:
        self.directory, self.clock = Directory("node1"), FakeClock()
        self.directory.set_namespace("a", {})
        for obj in PODS:
            self.pod(obj)
        self.programs: dict[Family, Program] = {Family.IPV4: planned(PODS, list(policies))}
        if cluster:
            self.programs = {Family.IPV4: planned_cluster(list(policies), list(cluster), PODS)}
        for obj in policies:
            found, _ = parse.policy(obj)
            self.directory.set_policy(found.name, found)
        self.seen: list[Drop] = []
        self.log = DropLog(self.directory, lambda: self.programs, self, lambda: "", self.clock)

    def pod(self, obj: Json) -> None:
        one = parse.pod(obj)
        self.directory.set_pod(one.name, one)

    def refused(self, drop: Drop) -> None:
        self.seen.append(drop)

    @property
    def group(self) -> str:
        return next(iter(self.programs[Family.IPV4].groups))

    async def take(self, *data: bytes, group: str = "") -> None:
        datagram = b"".join(report(group or self.group, one) for one in data)
        await self.log.take(list(nflog.records(datagram)))

    async def drops(self, **question: object) -> tuple[ReportedDrop, ...]:
        return reported_drops(await self.log.answer({"about": "drops", **question}))


DENY = policy("deny", select={"app": "a1"})


async def test_a_reported_packet_has_names_policies_and_reasons() -> None:
    world = World(DENY, policy("more", select={"app": "a1"}, ingress=[{"from": [apps("x")]}]))
    await world.take(packet(B, A))
    (one,) = await world.drops()
    assert (one.client.pod, one.server.pod, one.policies) == ("a/a2", "a/a1", ("a/deny", "a/more"))
    assert one.remedy == "a/more ingress[0], if it selected the peer"
    assert [each.near[0].policy for each in world.seen] == [Name("a", "deny")]


async def test_what_is_no_packet_or_of_no_group_is_counted_and_nothing_else() -> None:
    world = World(DENY)
    await world.take(b"", b"\x45", packet(B, A)[:10])
    await world.take(packet(B, A), group="somebody-else")
    assert (await world.log.answer({}))["unreadable"] == 4 and await world.drops() == () and world.seen == []


async def test_while_rules_are_written_the_last_ones_say_what_a_packet_met() -> None:
    world = World(DENY)
    group = world.group
    await world.take(packet(B, A))
    world.programs = {}
    await world.take(packet(B, A, ports=(1, 81)), group=group)
    assert [one.policies for one in await world.drops()] == [("a/deny",), ("a/deny",)]


async def test_a_group_that_is_gone_still_has_ends_and_a_direction() -> None:
    world = World(DENY)
    await world.take(packet(B, A), group="group-egress-0000")
    (one,) = await world.drops()
    assert (one.direction, one.client.pod, one.policies, one.remedy) == ("Egress", "a/a2", (), "")


async def test_a_policy_that_changes_changes_what_the_next_packet_is_told() -> None:
    world = World(DENY)
    await world.take(packet(B, A))
    assert (await world.drops())[0].remedy == "an ingress rule in a/deny for this peer and port 80/TCP"
    allowing, _ = parse.policy(policy("deny", select={"app": "a1"}, ingress=[{"ports": [{"port": 81}]}]))
    world.directory.set_policy(allowing.name, allowing)
    await world.take(packet(B, A))
    assert (await world.drops())[0].remedy == "a/deny ingress[0], if it listed port 80/TCP"


async def test_a_policy_more_or_less_is_seen_in_the_next_packet() -> None:
    world = World(DENY)
    await world.take(packet(B, A))
    both = [DENY, policy("more", select={"app": "a1"}, ingress=[{"from": [apps("x")]}])]
    world.directory.set_policy(Name("a", "more"), parse.policy(both[1])[0])
    await world.take(packet(B, A))
    world.programs = {Family.IPV4: planned(PODS, both)}  # the daemon hears of a policy before the kernel has it
    await world.take(packet(B, A))
    (one,) = await world.drops()
    assert one.policies == ("a/deny", "a/more") and one.remedy == "a/more ingress[0], if it selected the peer"


async def test_pods_and_namespaces_that_change_are_looked_at_again_after_a_while() -> None:
    only = policy("only", select={"app": "a1"}, ingress=[{"from": [apps("a2")], "ports": [{"port": 81}]}])
    world = World(only)
    await world.take(packet(B, A))
    world.pod(pod("a2", B, labels={"app": "other"}))
    await world.take(packet(B, A))
    assert (await world.drops())[0].remedy == "a/only ingress[0], if it listed port 80/TCP"
    await world.clock.advance(11)
    world.clock.step(11)
    await world.take(packet(B, A))
    assert (await world.drops())[0].remedy == "a rule of a/only for this peer and port 80/TCP"


async def test_a_pod_that_has_just_got_its_address_is_named() -> None:
    world = World(DENY)
    world.pod(pod("new", labels={"app": "a1"}))
    world.directory.hold(Name("a", "new"), "uid-new", parse.addresses(["10.0.0.9"]))
    await world.take(packet("10.0.0.9", A))
    assert (await world.drops())[0].client.pod == "a/new"


async def test_a_pod_with_a_new_sandbox_has_its_new_address_before_its_status_says_so() -> None:
    world = World(DENY)
    world.directory.hold(Name("a", "a2"), "uid-a2", parse.addresses(["10.0.0.9"]))
    world.pod(pod("a2", B))
    await world.take(packet("10.0.0.9", A), packet(B, A, ports=(1, 81)))
    assert [one.client.pod for one in await world.drops()] == ["a/a2", ""]
    world.pod(pod("a2", B, uid="another"))
    await world.take(packet(B, A, ports=(1, 82)))
    assert (await world.drops())[-1].client.pod == "a/a2", "what was held was of a former pod"


async def test_an_address_is_that_of_the_pod_that_the_runtime_gave_it_whatever_another_says() -> None:
    world = World(DENY)
    world.directory.hold(Name("a", "a2"), "uid-a2", parse.addresses([B]))
    world.pod(pod("claims", B))
    await world.take(packet(B, A))
    assert (await world.drops())[-1].client.pod == "a/a2"
    world.directory.set_pod(Name("a", "a2"), None)
    world.pod(pod("claims", B))
    await world.take(packet(B, A, ports=(1, 81)))
    assert (await world.drops())[-1].client.pod == "a/claims", "nobody else has it any more"


async def test_an_address_is_that_of_who_has_it_now() -> None:
    world = World(DENY)
    world.directory.set_pod(Name("a", "a2"), None)
    await world.take(packet(B, A))
    world.pod(pod("next", B))
    await world.take(packet(B, A, ports=(1, 81)))
    assert [one.client.pod for one in await world.drops()] == ["", "a/next"]
    world.pod(pod("next", B, phase="Failed"))
    await world.take(packet(B, A, ports=(1, 82)))
    assert (await world.drops())[-1].client.pod == ""


async def test_a_follower_waits_for_the_next_drop_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.drops.log.WAITS", 0.05)
    world = World(DENY)
    assert await world.drops(wait=True) == (), "nothing within the limit"
    monkeypatch.setattr("policy.drops.log.WAITS", 60)
    waiting = asyncio.create_task(world.drops(wait=True))
    await asyncio.sleep(0)
    await world.take(packet(B, A))
    assert len(await asyncio.wait_for(waiting, 5)) == 1
    assert len(await world.drops(after=0, wait=True)) == 1, "what is there is told at once"
    assert await world.drops(after=1) == ()


async def test_many_drops_are_told_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.drops.log.PAGE", 3)
    world = World(DENY)
    await world.take(*(packet(B, A, ports=(1, port)) for port in range(7)))
    ports, after, more = [], 0, True
    while more:
        answer = await world.log.answer({"about": "drops", "after": after, "wait": True})
        ports += [one.port for one in reported_drops(answer)]
        after, more = answer["number"], answer["more"]
    assert ports == list(range(7)) and after == 7


@pytest.mark.parametrize("after", [-1, 5, "x", None, 1 << 80])
async def test_a_number_that_cannot_be_means_all(after: object) -> None:
    world = World(DENY)
    await world.take(packet(B, A))
    assert len(await world.drops(after=after)) == 1


NO = cluster_policy("no", ingress=[ingress("Deny", name="guard")])


async def test_a_rule_that_denies_is_named_and_what_would_have_to_come_before_it() -> None:
    world = World(cluster=(NO,))
    (chain,) = world.programs[Family.IPV4].denials
    await world.take(packet(B, A), packet(A, B, ports=(80, 9), flags=SYN_ACK), group=chain)
    (first,) = await world.drops()
    assert first.count == 2, "the second is the answer to the first: both pods are judged, so its flags say so"
    assert (first.direction, first.client.pod, first.port, first.policies) == ("Ingress", "a/a2", 80, ())
    assert first.denied == "ClusterNetworkPolicy: Admin ingress[0] of no guard"
    assert first.remedy == "a rule of a ClusterNetworkPolicy before Admin ingress[0] of no guard"


async def test_what_belongs_to_no_connection_is_refused_by_nobodys_rule() -> None:
    world = World(cluster=(NO,))
    await world.take(packet(B, A))
    (one,) = await world.drops()
    assert one.denied == "ClusterNetworkPolicies, as it belongs to no connection" and one.remedy == ""
