"""A board and one browser without a server: the fakes of test_board.py, test_viewer.py and test_packet.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock, settle
from view.model.network import Applied, Enforced, Link, NodeRules, ServiceSaid, TableRule, Traced, Wired
from view.model.nodes import NodeWork
from view.model.objects import CLUSTER_POLICY, POLICY, SLICE, Question, Row, Stores
from view.model.pods import Cost, Step, Why
from view.plan.rows import key_of
from view.ports import Feed, Gone, Refusals
from view.work.board import Board
from view.work.viewer import Viewer


class Seen:
    """A browser that takes everything at once."""

    def __init__(self) -> None:
        self.states: list[Json] = []
        self.changes: list[dict[str, Row | None]] = []

    def rows(self, changed: Mapping[str, Row | None]) -> None:
        if changed:
            self.changes.append(dict(changed))

    def state(self, text: str) -> None:
        self.states.append(json.loads(text))

    def newest(self, key: str) -> Row | None:
        return next(one[key] for one in reversed(self.changes) if key in one)


class Kernelless:
    """Answers that need no node; `problem` makes them fail."""

    def __init__(self) -> None:
        self.problem = ""
        self.steps: tuple[Step, ...] = ()
        self.asked = 0
        self.is_well = self.by_node = True
        self.slow: tuple[FakeClock, float] | None = None  # so long does `why` take
        self.only_node: list[bool] = []  # of each question about a pod
        self.work = NodeWork()
        self.nodes: list[str] = []
        self.wirings: list[str] = []
        self.counted = 0
        self.measured = 0
        self.daemons_change: Callable[[], None] | None = None

    async def why(self, pod: Json, events: Sequence[Json], *, only_node: bool = False) -> Why:
        self.asked += 1
        self.only_node.append(only_node)
        if self.slow is not None:
            clock, seconds = self.slow
            await clock.sleep(seconds)
        if self.problem:
            raise Temporary(self.problem, action="Look at it.")
        said = f"{pod['status']['phase']} with {len(events)} events"
        return Why(said, self.is_well, self.by_node, steps=self.steps)

    async def costs(self, pod: Json) -> tuple[Cost, ...]:
        self.measured += 1
        figures = {"cpu_seconds": 0.5 * self.measured, "throttled_seconds": 0.0, "memory_working_set": 7.0}
        return (Cost("container main", "0.5 s of CPU", figures),)

    async def averages(self, node: str) -> Mapping[str, float]:
        return {"prepare": 0.5}

    async def service(self, service: Json, stores: Stores) -> ServiceSaid:
        return ServiceSaid((f"{len(stores[SLICE])} slices",))

    async def node(self, name: str) -> NodeWork:
        self.nodes.append(name)
        return self.work

    @contextlib.asynccontextmanager
    async def news_of(self, name: str, on_change: Callable[[], None]) -> AsyncIterator[None]:
        self.daemons_change = on_change
        try:
            yield
        finally:
            self.daemons_change = None

    async def wired(self, node: str, stores: Stores) -> Wired:
        self.wirings.append(node)
        return Wired((Link("nw0", "bridge", "", ("10.0.1.1/24",), "UP", 1500, "", 1, 2, 0, "{}"),))

    async def policy(self, policy: Json, stores: Stores) -> Enforced:
        self.counted += 1
        return Enforced((NodeRules("node1", (TableRule("policy-ingress-a", "accept", self.counted, ""),)),))

    def applied_to(
        self, pod: Json, policies: Iterable[Json], above: Iterable[Json], space: Json | None
    ) -> Sequence[Applied]:
        """Cluster policies: those of the namespaces with the label that is their name."""
        found = [Applied(POLICY, one["metadata"]["name"], "ingress") for one in policies]
        labels = ((space or {}).get("metadata") or {}).get("labels") or {}
        mine = (one["metadata"]["name"] for one in above if one["metadata"]["name"] in labels)
        return [*found, *(Applied(CLUSTER_POLICY, one, "ingress", "Admin") for one in mine)]

    async def trace(self, asked: Question, stores: Stores | None = None) -> Traced:
        raise NotImplementedError

    async def refused(self, taker: Refusals) -> None:
        """None is told of."""


class Events:
    def __init__(self) -> None:
        self.found: list[Json] = []
        self.on_change: Callable[[], None] = lambda: None
        self.open = 0

    def events(self) -> Sequence[Json]:
        return self.found

    @contextlib.asynccontextmanager
    async def about(self, obj: Json, on_change: Callable[[], None]) -> AsyncIterator[Feed]:
        self.open += 1
        self.on_change = on_change
        try:
            yield self
        finally:
            self.open -= 1


class Wire:
    """A connection that takes messages while `takes` is set."""

    def __init__(self) -> None:
        self.said: list[Json] = []
        self.takes = asyncio.Event()
        self.takes.set()
        self.gone = False

    async def send(self, text: str) -> None:
        await self.takes.wait()
        if self.gone:
            raise Gone("closed")
        self.said.append(json.loads(text))

    def of(self, kind: str) -> list[Json]:
        return [one for one in self.said if one["type"] == kind]


class World:
    def __init__(self) -> None:
        self.clock, self.answers, self.feeds, self.wire = FakeClock(), Kernelless(), Events(), Wire()
        self.board = Board(self.clock, "lab", self.answers.applied_to)
        self.viewer = Viewer(self.board, self.answers, self.feeds, self.wire, self.clock)

    def put(self, kind: str, obj: Json) -> None:
        self.board.changed(kind, key_of(obj), obj)

    async def later(self, seconds: float = 0.3) -> None:
        await settle()
        await self.clock.advance(seconds)
        await settle()


async def _at_once(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


@contextlib.asynccontextmanager
async def running_world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(asyncio, "to_thread", _at_once)  # FakeClock knows nothing of threads
    made = World()
    tasks = [asyncio.create_task(made.board.run())]
    yield made
    await cancel_and_wait(*tasks)


def deny(name: str, namespace: str = "shop") -> Json:
    return {"kind": "NetworkPolicy", "metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": {}}
