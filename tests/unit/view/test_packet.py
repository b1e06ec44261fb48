"""The view of packets: a walk is read again with bounds, and what is refused is told when it happens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock, settle
from tests.unit.view.looking import Kernelless
from view.model.network import Refused, Traced
from view.model.objects import PacketLook, Question, Stores
from view.plan import requests
from view.ports import Refusals
from view.work import packet

ASKED = Question("shop/web-1", "shop/db:80", "tcp")


def refused(port: int, last: float = 1.0, count: int = 1) -> Refused:
    return Refused("node1", last, count, "ingress", "shop/web-1", "shop/db-1", f"{port}/TCP", "shop/deny", "a rule")


class Answers(Kernelless):
    """Nodes whose rules take `takes` seconds to read."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock, self.takes, self.read = clock, 0.0, list[float]()
        self.stores: list[Stores | None] = []
        self.taker: Refusals | None = None

    async def trace(self, asked: Question, stores: Stores | None = None) -> Traced:
        self.read.append(self.clock.monotonic())
        self.stores.append(stores)
        if self.takes:
            await self.clock.sleep(self.takes)
        if self.problem:
            raise Temporary(self.problem)
        return Traced((f"ARRIVES {len(self.read)}",), asked.source, asked.to, ())

    async def refused(self, taker: Refusals) -> None:
        self.taker = taker
        try:
            await asyncio.Event().wait()
        finally:
            self.taker = None


class World:
    def __init__(self, asked: Question | None) -> None:
        self.clock = FakeClock()
        self.answers = Answers(self.clock)
        self.said: list[Json] = []
        clock: Clock = self.clock
        self.task = asyncio.create_task(packet.follow(asked, self.answers, {}, self.tell, clock))

    def tell(self, about: str, text: str) -> None:
        found = json.loads(text)
        assert found["type"] == about
        self.said.append(found)

    def of(self, kind: str) -> Sequence[Json]:
        return [one for one in self.said if one["type"] == kind]

    async def later(self, seconds: float) -> None:
        await settle()
        await self.clock.advance(seconds)
        await settle()


async def test_the_walk_is_read_every_two_seconds_from_what_the_watches_have() -> None:
    world = World(ASKED)
    for _ in range(10):
        await world.later(1)
    assert 4 <= len(world.answers.read) <= 6
    assert None not in world.answers.stores, "no object is asked for again"
    assert world.of("walk")[1]["found"]["verdict"] == ["ARRIVES 2"]
    assert world.of("walk")[0]["asked"] == {"from": "shop/web-1", "to": "shop/db:80", "protocol": "tcp"}
    await cancel_and_wait(world.task)
    before = len(world.answers.read)
    await world.later(10)
    assert len(world.answers.read) == before


async def test_slow_rules_are_read_a_fifth_of_the_time_at_most() -> None:
    world = World(ASKED)
    world.answers.takes = 3.0
    for _ in range(60):
        await world.later(1)
    assert len(world.answers.read) <= 60 / 15 + 1
    await cancel_and_wait(world.task)


async def test_rules_that_cannot_be_read_are_said_and_tried_again() -> None:
    world = World(ASKED)
    world.answers.problem = "the node is gone"
    await world.later(1)
    assert world.of("walk")[-1]["found"] == {"problem": "the node is gone"}
    world.answers.problem = ""
    await world.later(3)
    assert "verdict" in world.of("walk")[-1]["found"]
    await cancel_and_wait(world.task)


async def test_what_is_refused_is_told_when_it_happens_and_a_flow_once() -> None:
    world = World(None)
    await world.later(1)
    assert world.of("refused") == [{"type": "refused", "refused": [], "problems": {}}]
    assert world.answers.taker is not None
    for count in range(50):
        world.answers.taker.take([refused(80, last=float(count), count=count)])
    world.answers.taker.take([refused(81, last=7.5)])
    world.answers.taker.problem("node2", "its policy daemon is not running")
    await world.later(0.3)
    assert len(world.of("refused")) == 2
    newest = world.of("refused")[-1]
    assert [(one["port"], one["count"]) for one in newest["refused"]] == [("80/TCP", 49), ("81/TCP", 1)]
    assert newest["problems"] == {"node2": "its policy daemon is not running"}
    world.answers.taker.problem("node2", "")
    await world.later(0.3)
    assert world.of("refused")[-1]["problems"] == {}
    assert world.answers.read == []
    await cancel_and_wait(world.task)
    assert world.answers.taker is None


async def test_the_view_of_the_cluster_is_told_whose_packets_are_dropped_once_a_second() -> None:
    clock, answers, said = FakeClock(), Answers(FakeClock()), list[Json]()
    task = asyncio.create_task(packet.follow_cluster(answers, lambda text: said.append(json.loads(text)), clock))
    await settle()
    assert said == [{"type": "drops", "drops": []}]
    assert answers.taker is not None
    for at in range(20):
        answers.taker.take([refused(80, last=float(at))])
        await clock.advance(0.1)
        await settle()
    assert len(said) <= 4
    outside = replace(refused(81, last=50.0), source="192.0.2.7")
    answers.taker.take([refused(80, last=40.0), refused(82, last=41.0), outside])
    await clock.advance(1)
    await settle()
    (first, second) = said[-1]["drops"]
    assert (first["pod"], first["last"], first["to"], first["by"]) == ("pod/shop/db-1", 50.0, "shop/db-1", "shop/deny")
    assert (second["pod"], second["last"]) == ("pod/shop/web-1", 41.0), "one of each pod, the newest"
    await cancel_and_wait(task)
    assert answers.taker is None


async def test_thousands_of_flows_stay_a_hundred() -> None:
    world = World(None)
    await world.later(1)
    assert world.answers.taker is not None
    world.answers.taker.take([refused(port, last=float(port)) for port in range(1, 5000)])
    await world.later(0.3)
    found = world.of("refused")[-1]["refused"]
    assert len(found) == 100 and found[0]["port"] == "4999/TCP"
    await cancel_and_wait(world.task)


@pytest.mark.parametrize(
    ("text", "look"),
    [
        ('{"look": "packet"}', PacketLook()),
        ('{"look": "packet", "from": "shop/web-1", "to": "shop/db:80", "protocol": "tcp"}', PacketLook(ASKED)),
        ('{"look": "packet", "from": "--help", "to": "shop/db:80"}', PacketLook()),
        ('{"look": "packet", "from": 5, "to": ["a"]}', PacketLook()),
    ],
)
def test_a_browser_looks_at_packets(text: str, look: PacketLook) -> None:
    assert requests.look(text) == look
