"""The enforcer: what it writes and when, and that a refused transaction changes nothing and is made again."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import partial
from ipaddress import ip_address

import pytest

from nodelib.firewall.objects import Family
from nodelib.json_values import Json
from nodelib.nft.edge import NftError
from nodelib.nft.wire import Message
from policy.enforcer import Enforcer
from policy.model import Address, Name, Tracked
from policy.plan import layout, parse
from policy.plan.index import Changes, Index
from policy.plan.program import Planner, Program
from policy.protection import Protection
from tests.builders.policies import apps, pod, policy
from tests.fakes.clock import FakeClock
from tests.fakes.policies import Silent, Watched
from tests.fakes.policy_kernel import FakePolicyTable, Flow, allowed
from tests.waiting import until

A, B = "10.0.0.1", "10.0.0.2"


class World(Watched):
    """One family, with fakes around the enforcer. `generation` grows with every commit of anybody."""

    def __init__(self) -> None:
        self.table, self.reporter = FakePolicyTable(), Silent()
        self.foreign = 0
        planners = {Family.IPV4: Planner(Family.IPV4, "node1", report=False)}
        self.enforcer = Enforcer(
            {Family.IPV4: self.table},
            planners,
            FakeClock(),
            self.reporter,
            lambda: len(self.table.commits) + self.foreign,
        )
        self.enforcer.set_namespace("a", {})
        self.pods(pod("a1", A), pod("a2", B))

    def passes(self, client: str, server: str) -> bool:
        return allowed(self.enforcer.programs[Family.IPV4], Flow(client, server))


async def test_nothing_is_written_before_everything_is_listed() -> None:
    world = World()
    world.policies(policy())
    await world.enforcer.sync()
    assert world.table.content is None
    world.enforcer.start()
    await world.enforcer.sync()
    assert not world.passes(B, A)


async def test_a_sync_without_a_change_writes_nothing() -> None:
    world = World()
    world.enforcer.start()
    await world.enforcer.sync()
    world.pods(pod("a1", A))
    await world.enforcer.sync()
    assert len(world.table.commits) == 1


async def test_a_refused_transaction_is_told_and_followed_by_a_whole_one() -> None:
    world = World()
    world.enforcer.start()
    await world.enforcer.sync()
    before = world.table.content
    world.policies(policy(ingress=[{"from": [apps("a2")]}]))
    world.table.refuse = 1
    with pytest.raises(NftError):
        await world.enforcer.sync()
    assert world.table.content == before and len(world.reporter.errors) == 1
    assert "no memory" in world.enforcer.last_error
    await world.enforcer.sync()
    assert world.passes(B, A) and not world.passes("192.0.2.1", A)
    assert world.enforcer.last_error == ""


class BothFamilies(Watched):
    """A daemon of a node with IPv4 and IPv6. `order`: what is planned and written."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.tables = {family: OrderedTable(family, self.order) for family in Family}
        planners = {family: OrderedPlanner(family, self.order) for family in Family}
        self.enforcer = Enforcer(self.tables, planners, FakeClock(), Silent())
        self.enforcer.set_namespace("a", {})
        self.pods(pod("a1", A, "fd00::1"), pod("a2", B, "fd00::2"))

    def passes(self, family: Family, client: str, server: str) -> bool:
        return allowed(self.enforcer.programs[family], Flow(client, server))


class OrderedPlanner(Planner):
    def __init__(self, family: Family, order: list[str]) -> None:
        super().__init__(family, "node1", report=False)
        self._order = order

    def plan(self, index: Index, changes: Changes, generation: int = 1) -> tuple[Program, set[Tracked]]:
        self._order.append(f"plan {self.family}")
        return super().plan(index, changes, generation)


class OrderedTable(FakePolicyTable):
    def __init__(self, family: Family, order: list[str]) -> None:
        super().__init__(family)
        self._order = order

    async def commit(self, batch: list[Message]) -> None:
        self._order.append(f"write {self.family}")
        await super().commit(batch)


async def test_a_family_is_written_before_the_next_one_is_planned() -> None:
    world = BothFamilies()
    world.enforcer.start()
    await world.enforcer.sync()
    world.order.clear()
    world.policies(policy())
    await world.enforcer.sync()
    assert world.order == [f"{done} {family}" for family in Family for done in ("plan", "write")]


async def test_what_the_first_family_was_refused_reaches_the_second_all_the_same() -> None:
    world = BothFamilies()
    world.policies(policy(ingress=[{"from": [apps("a2")]}]))
    world.enforcer.start()
    await world.enforcer.sync()
    assert world.passes(Family.IPV6, "fd00::2", "fd00::1")
    world.tables[Family.IPV4].refuse = 1
    world.pods(pod("a2", B, "fd00::2", labels={"app": "other"}))
    world.policies(policy(ingress=[{"from": [apps("a2")]}], select={"app": "a1"}))
    with pytest.raises(NftError):
        await world.enforcer.sync()
    assert world.passes(Family.IPV6, "fd00::2", "fd00::1"), "it was not written"
    await world.enforcer.sync()
    assert not world.passes(Family.IPV6, "fd00::2", "fd00::1")
    assert not world.passes(Family.IPV4, B, A)
    assert world.passes(Family.IPV6, "fd00::1", "fd00::2"), "the policy selects a1 only now"


async def test_what_somebody_else_changes_is_written_again() -> None:
    world = World()
    world.policies(policy())
    world.enforcer.start()
    await world.enforcer.sync()
    await world.enforcer.sync()
    assert world.table.content is not None
    world.table.content.sets[layout.MAPS[next(iter(layout.MAPS))]].clear()
    world.foreign += 1
    assert not await world.enforcer.audit(deep=False), "elements are compared by deep audits only"
    assert await world.enforcer.audit(deep=True)
    await world.enforcer.sync()
    assert len(world.table.content.sets["ingress"]) == 2
    assert not await world.enforcer.audit(deep=True)


async def test_after_our_own_writes_nothing_is_read_from_the_first_one_on() -> None:
    world = World()
    world.policies(policy())
    world.enforcer.start()
    for number in range(3):
        world.policies(policy(f"p{number}"))
        await world.enforcer.sync()
        reads = world.table.reads
        assert not await world.enforcer.audit(deep=True)
        assert world.table.reads == reads


async def test_what_is_committed_beside_a_sync_is_ours_too() -> None:
    world = World()
    world.enforcer.start()
    await world.enforcer.sync()
    world.policies(policy())

    async def learnt() -> None:
        world.foreign += 1

    await asyncio.gather(world.enforcer.sync(), world.enforcer.beside(learnt()))
    reads = world.table.reads
    assert not await world.enforcer.audit(deep=True)
    assert world.table.reads == reads


async def test_a_transaction_of_others_between_two_of_ours_is_seen() -> None:
    world = World()
    world.policies(policy())
    world.enforcer.start()
    await world.enforcer.sync()
    assert not await world.enforcer.audit(deep=True)
    world.policies(policy("q"))

    def meddle() -> None:
        assert world.table.content is not None
        world.table.content.sets["ingress"].clear()
        world.foreign += 1

    world.table.after_commit = meddle
    await world.enforcer.sync()
    assert await world.enforcer.audit(deep=True)


async def test_no_table_is_left_when_another_implementation_takes_over() -> None:
    world = World()
    world.enforcer.start()
    await world.enforcer.sync()
    await world.enforcer.remove()
    assert world.table.content is None
    await world.enforcer.sync()
    assert world.table.content is None


class MemoryFile:
    def __init__(self) -> None:
        self.held: dict[Name, tuple[str, tuple[Address, ...]]] = {}

    def save(self, held: dict[Name, tuple[str, tuple[Address, ...]]]) -> None:
        self.held = dict(held)


QUESTION: Json = {"namespace": "a", "name": "new", "uid": "uid-new", "addresses": ["10.0.0.9"]}


async def test_a_pod_is_protected_when_the_answer_says_so() -> None:
    world, file = World(), MemoryFile()
    world.policies(policy())
    world.pods(pod("new"))
    world.enforcer.start()
    protection = Protection(world.enforcer, file, {}, lambda: "")
    runner = asyncio.create_task(world.enforcer.runner.run())
    try:
        assert await protection.answer(QUESTION) == {"protected": True}
        assert not world.passes(B, "10.0.0.9")
        assert file.held == {Name("a", "new"): ("uid-new", (ip_address("10.0.0.9"),))}
    finally:
        runner.cancel()


async def test_after_a_kill_a_pod_without_an_address_in_its_status_stays_protected() -> None:
    world = World()
    world.policies(policy())
    Protection(world.enforcer, MemoryFile(), {Name("a", "new"): ("uid-new", (ip_address("10.0.0.9"),))}, lambda: "")
    world.pods(pod("new"))
    world.enforcer.start()
    await world.enforcer.sync()
    assert not world.passes(B, "10.0.0.9")


async def test_addresses_of_pods_that_went_while_the_daemon_was_dead_are_forgotten() -> None:
    world, file = World(), MemoryFile()
    held: dict[Name, tuple[str, tuple[Address, ...]]] = {
        Name("a", name): (f"uid-{name}", (ip_address(ip),)) for name, ip in (("new", "10.0.0.9"), ("old", "10.0.0.8"))
    }
    protection = Protection(world.enforcer, file, held, lambda: "")
    world.pods(pod("new"))
    protection.forget_unknown()
    assert list(file.held) == [Name("a", "new")]
    world.pods(pod("new", "10.0.0.7", uid="another"))
    protection.forget_unknown()
    world.policies(policy())
    world.enforcer.start()
    await world.enforcer.sync()
    assert file.held == {} and not world.passes(B, "10.0.0.7")
    assert not world.passes(B, "10.0.0.9"), "what nobody has ended may run yet"


async def test_where_nothing_is_enforced_changes_are_kept_and_not_queued() -> None:
    world = World()
    world.policies(policy())
    await world.enforcer.sync()
    assert world.enforcer.queued == 0
    world.enforcer.start()
    await world.enforcer.sync()
    assert not world.passes(B, A)


async def test_a_pod_that_the_api_does_not_show_is_refused_and_the_answer_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("policy.protection.LIMIT", 0.05)
    world = World()
    world.enforcer.start()
    protection = Protection(world.enforcer, MemoryFile(), {}, lambda: "")
    answer = await protection.answer(QUESTION)
    assert answer["protected"] is False and "has not seen this pod" in answer["error"]
    world.pods(pod("new", uid="an-older-one"))
    await world.enforcer.sync()
    assert (await protection.answer(QUESTION))["protected"] is False


async def test_a_pod_whose_rules_the_kernel_refuses_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.protection.LIMIT", 0.2)
    world = World()
    world.pods(pod("new"))
    world.enforcer.start()
    world.table.refuse = 1_000_000
    runner = asyncio.create_task(world.enforcer.runner.run())
    try:
        answer = await Protection(world.enforcer, MemoryFile(), {}, lambda: "").answer(QUESTION)
    finally:
        runner.cancel()
    assert answer["protected"] is False and "no memory" in answer["error"]


async def test_where_another_implementation_enforces_no_pod_waits() -> None:
    protection = Protection(World().enforcer, MemoryFile(), {}, lambda: "Calico is the pod network")
    assert await protection.answer(QUESTION) == {"protected": True}


@pytest.mark.parametrize("question", [{}, {"addresses": "10.0.0.1"}, {"name": 5, "addresses": [None, "x%\n"]}])
async def test_an_answer_is_given_to_any_question(question: Json, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.protection.LIMIT", 0.02)
    assert "protected" in await Protection(World().enforcer, MemoryFile(), {}, lambda: "").answer(question)


class Slow(FakePolicyTable):
    """What an audit reads from: the table of the others, slowly."""

    def __init__(self, table: FakePolicyTable) -> None:
        super().__init__()
        self.table, self.may = table, asyncio.Event()

    def has_been_read(self, times: int) -> bool:
        return self.reads == times

    async def digests(self, chains: Collection[str] | None = None) -> dict[str, str]:
        self.reads += 1
        found = await self.table.digests(chains)
        await self.may.wait()
        return found


async def test_a_change_does_not_wait_for_an_audit_and_makes_it_useless_but_not_for_ever() -> None:
    world = World()
    slow = Slow(world.table)
    planners = {Family.IPV4: Planner(Family.IPV4, "node1", report=False)}
    enforcer = Enforcer({Family.IPV4: world.table}, planners, FakeClock(), world.reporter, readers={Family.IPV4: slow})
    found, _ = parse.policy(policy())
    enforcer.set_policy(found.name, found)
    enforcer.set_pod(Name("a", "a1"), parse.pod(pod("a1", A)))
    enforcer.start()
    await enforcer.sync()
    for turn in range(5):
        audit = asyncio.create_task(enforcer.audit(deep=False))
        await until(partial(slow.has_been_read, turn + 1))
        changed, _ = parse.policy(policy(ingress=[{"ports": [{"port": turn + 1}]}]))
        enforcer.set_policy(changed.name, changed)
        await asyncio.wait_for(enforcer.sync(), 5)
        slow.may.set()
        assert not await audit, "what it read was on its way to be changed by us"
        slow.may.clear()
    audit = asyncio.create_task(enforcer.audit(deep=False))
    await until(partial(slow.has_been_read, 6))
    changed, _ = parse.policy(policy())
    enforcer.set_policy(changed.name, changed)
    sync = asyncio.create_task(enforcer.sync())
    await asyncio.sleep(0)
    assert not sync.done(), "changes that never cease wait for one audit"
    slow.may.set()
    assert not await audit
    await sync
