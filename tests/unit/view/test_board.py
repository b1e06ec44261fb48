"""Changes are folded, and a slow browser gets only the newest of everything."""

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
from tests.unit.view.world import ready_node, running, shop_service, shop_slice
from view.model import (
    NODE,
    PATHS,
    POD,
    POLICY,
    SERVICE,
    SLICE,
    Cost,
    Link,
    Look,
    NodeRules,
    NodeWork,
    PodRecord,
    Question,
    Row,
    Step,
    Stores,
    TableRule,
    Traced,
    Why,
    Wired,
)
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
        self.work = NodeWork()
        self.nodes: list[str] = []
        self.wirings: list[str] = []
        self.counted = 0
        self.measured = 0
        self.daemons_change: Callable[[], None] | None = None

    async def why(self, pod: Json, events: Sequence[Json]) -> Why:
        self.asked += 1
        if self.problem:
            raise Temporary(self.problem, action="Look at it.")
        return Why(f"{pod['status']['phase']} with {len(events)} events", True, False, steps=self.steps)

    async def costs(self, pod: Json) -> tuple[Cost, ...]:
        self.measured += 1
        figures = {"cpu_seconds": 0.5 * self.measured, "throttled_seconds": 0.0, "memory_working_set": 7.0}
        return (Cost("container main", "0.5 s of CPU", figures),)

    async def averages(self, node: str) -> Mapping[str, float]:
        return {"prepare": 0.5}

    async def service(self, service: Json, stores: Stores) -> Sequence[str]:
        return [f"{len(stores[SLICE])} slices"]

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

    async def policy(self, policy: Json, stores: Stores) -> Sequence[NodeRules]:
        self.counted += 1
        return (NodeRules("node1", (TableRule("policy-ingress-a", "accept", self.counted, ""),)),)

    def isolated_by(self, pod: Json, policies: Iterable[Json]) -> Mapping[str, str]:
        return {one["metadata"]["name"]: "ingress" for one in policies}

    async def trace(self, asked: Question, stores: Stores | None = None) -> Traced:
        raise NotImplementedError

    async def refused(self, taker: Refusals) -> None:
        raise NotImplementedError


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
        self.board = Board(self.clock, "lab", self.answers.isolated_by)
        self.viewer = Viewer(self.board, self.answers, self.feeds, self.wire, self.clock)

    def put(self, kind: str, obj: Json) -> None:
        self.board.changed(kind, key_of(obj), obj)

    async def later(self, seconds: float = 0.3) -> None:
        await settle()
        await self.clock.advance(seconds)
        await settle()


async def _at_once(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(asyncio, "to_thread", _at_once)  # FakeClock knows nothing of threads
    made = World()
    tasks = [asyncio.create_task(made.board.run())]
    yield made
    await cancel_and_wait(*tasks)


async def test_changes_within_a_moment_are_one_message_and_a_heartbeat_is_none(world: World) -> None:
    seen = Seen()
    world.board.join(seen)
    node = ready_node("node1", "192.0.2.11", "10.0.1.0/24")
    world.put(NODE, node)
    for at in range(50):
        world.put(POD, running("web", f"10.0.1.{at}", "node1"))
    await world.later()
    assert len(seen.changes) == 1 and set(seen.changes[0]) == {"node//node1", "pod/shop/web"}
    row = seen.newest("pod/shop/web")
    assert row is not None and row["addresses"] == ["10.0.1.49"]

    node["status"]["conditions"][0] |= {"lastHeartbeatTime": "2026-11-23T20:01:00Z"}
    world.put(NODE, {**node, "metadata": {**node["metadata"], "resourceVersion": "2"}})
    await world.later()
    assert len(seen.changes) == 1


async def test_a_node_counts_its_pods_and_a_pod_that_is_gone_leaves_the_table(world: World) -> None:
    seen = Seen()
    world.board.join(seen)
    world.put(NODE, ready_node("node1", "192.0.2.11", "10.0.1.0/24"))
    for name in ("a", "b"):
        world.put(POD, running(name, "10.0.1.2", "node1"))
    await world.later()
    assert (seen.newest("node//node1") or {})["pods"] == 2
    world.board.changed(POD, ("shop", "a"), None)
    await world.later()
    assert seen.newest("pod/shop/a") is None
    assert (seen.newest("node//node1") or {})["pods"] == 1


async def test_a_slice_changes_the_row_of_its_service_also_when_it_moves_to_another(world: World) -> None:
    seen = Seen()
    world.board.join(seen)
    for name in ("web", "db"):
        world.put(SERVICE, shop_service(name, "10.9.0.7"))
    slice_ = shop_slice("web", ("web-1", "10.0.1.2", True))
    world.put(SLICE, slice_)
    await world.later()
    assert (seen.newest("service/shop/web") or {})["state"] == "1 of 1 ready"
    moved = shop_slice("db", ("web-1", "10.0.1.2", True))
    world.board.changed(SLICE, key_of(slice_), {**moved, "metadata": {**moved["metadata"], "name": "web-1"}})
    await world.later()
    assert (seen.newest("service/shop/web") or {})["state"] == "no endpoints"
    assert (seen.newest("service/shop/db") or {})["state"] == "1 of 1 ready"


async def test_the_state_says_which_watch_gives_no_news_and_when_all_are_well_again(world: World) -> None:
    seen = Seen()
    world.board.join(seen)
    for kind in PATHS:
        world.board.told(kind, "", synced=True)
    assert [one["synced"] for one in seen.states] == [False, True]
    world.board.told(POD, "connection refused", synced=False)
    world.board.told(POD, "connection refused", synced=False)
    assert [one["problems"] for one in seen.states[2:]] == [["connection refused"]]
    world.board.told(POD, "", synced=True)
    assert seen.states[-1] == {"type": "state", "problems": [], "synced": True, "cluster": "lab"}


async def test_for_a_slow_browser_only_the_newest_rows_wait(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    await settle()
    world.wire.takes.clear()
    for at in range(200):
        world.put(POD, running("web", f"10.0.1.{at}", "node1"))
        await world.later(0.06)
    world.wire.takes.set()
    await world.later()
    said = [row["addresses"] for one in world.wire.of("rows") for row in one["rows"]]
    assert said[-1] == ["10.0.1.199"] and len(said) <= 2
    await cancel_and_wait(serving)


async def test_a_pod_that_is_looked_at_is_told_anew_when_it_or_its_events_change(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    pod = running("web", "10.0.1.2", "node1")
    world.put(POD, pod)
    world.viewer.hear('{"look": "pod/shop/web"}')
    await world.later()
    assert [one["why"]["summary"] for one in world.wire.of("detail")] == ["Running with 0 events"]

    world.feeds.found.append({"metadata": {"name": "e"}, "reason": "Pulling"})
    world.feeds.on_change()
    await world.later()
    assert world.wire.of("detail")[-1]["why"]["summary"] == "Running with 1 events"

    asked = world.answers.asked
    for _ in range(5):
        await world.later(10)
    assert world.answers.asked == asked, "nothing is asked while nothing changes"

    world.viewer.hear('{"look": ""}')
    await world.later()
    assert world.feeds.open == 0
    await cancel_and_wait(serving)


async def test_a_node_that_is_at_work_on_a_pod_is_asked_again_until_it_is_done(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.answers.steps = (Step(1.0, "prepare", None, "ok"),)
    world.put(POD, running("web", "10.0.1.2", "node1"))
    world.viewer.hear('{"look": "pod/shop/web"}')
    await world.later(1)
    assert world.answers.asked >= 2
    world.answers.steps = (Step(1.0, "prepare", 2.0, "ok"),)
    await world.later(10)
    asked = world.answers.asked
    assert world.wire.of("detail")[-1]["life"]["bars"]
    await world.later(100)
    assert world.answers.asked == asked
    await cancel_and_wait(serving)


async def test_a_node_is_asked_when_its_pods_or_daemons_change_and_now_and_then_while_somebody_looks(
    world: World,
) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.put(NODE, ready_node("node1", "192.0.2.11", "10.0.1.0/24"))
    world.viewer.hear('{"look": "node//node1"}')
    await world.later(1)
    assert world.answers.nodes == ["node1"]
    world.put(POD, running("web", "10.0.1.2", "node1"))
    await world.later(0.1)
    assert world.answers.nodes == ["node1"] * 2
    for at in range(50):  # a burst of starts is one question a second
        world.put(POD, running(f"web-{at}", f"10.0.1.{at}", "node1"))
        await world.later(0.02)
    assert len(world.answers.nodes) <= 4
    await world.later(2)
    asked = len(world.answers.nodes)
    assert world.answers.daemons_change is not None
    world.answers.daemons_change()
    await world.later(0.1)
    assert len(world.answers.nodes) == asked + 1
    await world.later(60)
    before = len(world.answers.nodes)
    world.put(POD, running("other", "10.0.2.2", "node2"))
    await world.later(0.1)
    assert len(world.answers.nodes) == before, "another node's pod is no news"
    world.viewer.hear('{"look": ""}')
    await world.later(60)
    assert len(world.answers.nodes) == before and world.answers.daemons_change is None
    await cancel_and_wait(serving)


async def test_a_node_that_is_at_work_is_asked_again_soon(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.put(NODE, ready_node("node1", "192.0.2.11", "10.0.1.0/24"))
    world.answers.work = NodeWork((PodRecord(("shop", "web"), (Step(1.0, "sandbox", None, "ok", kind="sandbox"),)),))
    world.viewer.hear('{"look": "node//node1"}')
    for _ in range(6):
        await world.later(0.6)
    assert len(world.answers.nodes) >= 2
    (lane,) = world.wire.of("detail")[-1]["work"]["lanes"]
    assert lane["pod"] == "pod/shop/web" and lane["ready"] is None
    await cancel_and_wait(serving)


def deny(name: str, namespace: str = "shop") -> Json:
    return {"kind": "NetworkPolicy", "metadata": {"namespace": namespace, "name": name, "uid": name}, "spec": {}}


async def test_a_policy_is_a_row_and_in_the_rows_of_its_namespace_s_pods(world: World) -> None:
    seen = Seen()
    world.board.join(seen)
    other = running("other", "10.0.1.3", "node1", namespace="elsewhere")
    for pod in (running("web", "10.0.1.2", "node1"), other):
        world.put(POD, pod)
    await world.later()
    world.put(POLICY, deny("deny"))
    await world.later()
    assert set(seen.changes[-1]) == {"networkpolicy/shop/deny", "pod/shop/web"}
    isolated = (seen.newest("pod/shop/web") or {})["isolated"]
    assert isolated == [{"policy": "networkpolicy/shop/deny", "name": "deny", "how": "ingress"}]
    assert (seen.newest("networkpolicy/shop/deny") or {})["how"] == "ingress"
    world.board.changed(POLICY, ("shop", "deny"), None)
    await world.later()
    assert (seen.newest("pod/shop/web") or {})["isolated"] == []
    assert seen.newest("networkpolicy/shop/deny") is None


async def test_a_policy_that_is_looked_at_has_counters_that_move(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.put(POLICY, deny("deny"))
    world.viewer.hear('{"look": "networkpolicy/shop/deny"}')
    await world.later(1)
    await world.later(6)
    rules = [one["enforced"]["nodes"][0]["rules"][0]["packets"] for one in world.wire.of("detail")]
    assert rules == [1, 2]
    await cancel_and_wait(serving)


async def test_the_wiring_is_told_anew_when_pods_change_while_the_cluster_is_looked_at(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.put(NODE, ready_node("node1", "192.0.2.11", "10.0.1.0/24"))
    world.viewer.hear('{"look": "wiring"}')
    await world.later(3)
    (said,) = world.wire.of("wiring")
    (link,) = said["nodes"]["node1"]["links"]
    assert (link["name"], link["addresses"]) == ("nw0", ["10.0.1.1/24"]) and "text" not in link
    for at in range(100):
        world.put(POD, running(f"web-{at}", f"10.0.1.{at}", "node1"))
    await world.later(0.1)
    assert len(world.answers.wirings) == 2, "a burst of pods is one question"
    world.viewer.hear('{"look": ""}')
    await world.later(100)
    assert len(world.answers.wirings) == 2
    await cancel_and_wait(serving)


async def test_what_a_pod_uses_is_measured_while_it_is_looked_at(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.put(POD, running("web", "10.0.1.2", "node1"))
    world.viewer.hear('{"look": "pod/shop/web"}')
    for _ in range(6):
        await world.later(3)
    newest = world.wire.of("costs")[-1]
    (cost,) = newest["costs"]
    cpu = next(one for one in cost["series"] if one["name"] == "CPU")
    assert newest["key"] == "pod/shop/web" and len(cpu["values"]) >= 3
    assert cpu["values"][-1] == pytest.approx(0.5 / 3)
    assert world.answers.asked == 1, "the API server's part is asked for once"
    world.viewer.hear('{"look": ""}')
    measured = world.answers.measured
    await world.later(60)
    assert world.answers.measured == measured
    await cancel_and_wait(serving)


async def test_an_answer_that_fails_is_said_and_the_pod_is_still_shown(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.answers.problem = "the agent is away"
    world.put(POD, running("web", "10.0.1.2", "node1"))
    world.viewer.hear('{"look": "pod/shop/web"}')
    await world.later()
    (said,) = world.wire.of("detail")
    assert said["why"] == {"problem": "the agent is away. Look at it."} and "kind: Pod" in said["object"]
    await cancel_and_wait(serving)


async def test_what_is_gone_or_never_was_is_said(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.viewer.hear('{"look": "service/shop/nosuch"}')
    await world.later()
    assert world.wire.of("detail")[-1]["gone"]
    world.put(SERVICE, shop_service("nosuch", "10.9.0.7"))
    await world.later()
    assert world.wire.of("detail")[-1]["lines"] == ["0 slices"]
    world.board.changed(SERVICE, ("shop", "nosuch"), None)
    await world.later()
    assert world.wire.of("detail")[-1]["gone"]
    await cancel_and_wait(serving)


async def test_a_browser_that_has_left_is_forgotten_with_all_that_it_followed(world: World) -> None:
    world.put(POD, running("web", "10.0.1.2", "node1"))
    serving = asyncio.create_task(world.viewer.run())
    world.viewer.hear('{"look": "pod/shop/web"}')
    await world.later()
    world.wire.gone = True
    world.put(POD, running("web", "10.0.1.3", "node1"))
    await world.later()
    with pytest.raises(Gone):
        await serving
    ends: Any = world.board.follow(Look(POD, ("shop", "web")), lambda: None)
    ends()
    assert world.feeds.open == 0
