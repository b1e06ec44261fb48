"""Changes are folded, and a slow browser gets only the newest of everything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nodelib.tasks import cancel_and_wait
from tests.builders.cluster_policies import cluster_policy
from tests.fakes.clock import settle
from tests.unit.view.looking import Seen, World, deny, running_world
from tests.unit.view.world import namespace, ready_node, running, shop_service, shop_slice
from view.model.objects import CLUSTER_POLICY, NAMESPACE, NODE, PATHS, POD, POLICY, SERVICE, SLICE
from view.plan.rows import key_of
from view.work.board import Board


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with running_world(monkeypatch) as found:
        yield found


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
        world.board.on_state(kind, "", synced=True)
    assert [one["synced"] for one in seen.states] == [False, True]
    world.board.on_state(POD, "connection refused", synced=False)
    world.board.on_state(POD, "connection refused", synced=False)
    assert [one["problems"] for one in seen.states[2:]] == [["connection refused"]]
    world.board.on_state(POD, "", synced=True)
    assert seen.states[-1] == {
        "type": "state",
        "problems": [],
        "synced": True,
        "cluster": "lab",
        "notes": [],
    }


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
    applied = (seen.newest("pod/shop/web") or {})["policies"]
    assert applied == [{"policy": "networkpolicy/shop/deny", "name": "deny", "how": "ingress", "tier": ""}]
    assert (seen.newest("networkpolicy/shop/deny") or {})["how"] == "ingress"
    world.board.changed(POLICY, ("shop", "deny"), None)
    await world.later()
    assert (seen.newest("pod/shop/web") or {})["policies"] == []
    assert seen.newest("networkpolicy/shop/deny") is None


async def test_a_cluster_policy_is_in_the_rows_of_the_pods_of_the_namespaces_that_it_selects(world: World) -> None:
    seen = Seen()
    world.board.join(seen)
    other = running("other", "10.0.1.3", "node1", namespace="elsewhere")
    for pod in (running("web", "10.0.1.2", "node1"), other):
        world.put(POD, pod)
    world.put(NAMESPACE, namespace("shop"))
    world.put(CLUSTER_POLICY, cluster_policy("closed"))
    await world.later()
    assert (seen.newest("clusternetworkpolicy//closed") or {})["tier"] == "Admin"
    seen.changes.clear()
    world.put(NAMESPACE, namespace("shop", closed="yes"))
    await world.later()
    assert set(seen.changes[-1]) == {"pod/shop/web"}
    applied = (seen.newest("pod/shop/web") or {})["policies"]
    assert applied == [{"policy": "clusternetworkpolicy//closed", "name": "closed", "how": "ingress", "tier": "Admin"}]
    world.board.changed(CLUSTER_POLICY, ("", "closed"), None)
    await world.later()
    assert (seen.newest("pod/shop/web") or {})["policies"] == []
    assert seen.newest("clusternetworkpolicy//closed") is None


async def test_a_namespace_s_labels_are_no_news_where_there_is_no_cluster_policy(world: World) -> None:
    seen = Seen()
    world.board.join(seen)
    world.put(POD, running("web", "10.0.1.2", "node1"))
    await world.later()
    seen.changes.clear()
    world.put(NAMESPACE, namespace("shop", closed="yes"))
    await world.later()
    assert seen.changes == []


class _Busy:
    """A clock on which every row takes 0.05 s."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        return self.passed

    def steady(self) -> float:
        return self.passed

    def monotonic(self) -> float:
        return self.passed

    async def sleep(self, seconds: float) -> None:
        self.passed += seconds
        await asyncio.sleep(0)


async def test_rows_that_take_long_leave_turns_to_others_and_are_shown_as_they_come() -> None:
    """As rows of pods do in a namespace of 5,000 policies: 32 of them took 1.5 s between two turns."""
    clock, seen = _Busy(), Seen()

    def slow(*_: object) -> tuple[()]:
        clock.passed += 0.05
        return ()

    board = Board(clock, "nodewright", slow)
    board.join(seen)
    for number in range(100):
        board.changed(POD, ("shop", f"p{number}"), running(f"p{number}", "10.0.1.2", "node1"))
    running_board, before, longest = asyncio.create_task(board.run()), 0.0, 0.0
    while sum(map(len, seen.changes)) < 100:
        await asyncio.sleep(0)
        longest, before = max(longest, clock.passed - before), clock.passed
    await cancel_and_wait(running_board)
    assert longest < 0.11 and len(seen.changes) > 3
