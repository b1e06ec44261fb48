"""What a browser looks at is told anew when it changes, and asked about no more often than somebody can use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from cli.commands.view.wiring import FRESH
from nodelib.tasks import cancel_and_wait
from tests.unit.view.looking import World, deny, running_world
from tests.unit.view.world import ready_node, running, shop_service
from view.model.nodes import NodeWork
from view.model.objects import NODE, POD, POLICY, SERVICE, Look
from view.model.pods import PodRecord, Step
from view.ports import Gone


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with running_world(monkeypatch) as found:
        yield found


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


async def test_a_pod_that_is_not_well_is_asked_about_again_but_only_its_node(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.answers.is_well = False
    world.put(POD, running("web", "10.0.1.2", "node1"))
    world.viewer.hear('{"look": "pod/shop/web"}')
    for _ in range(60):
        await world.later(1)
    assert 10 <= world.answers.asked <= 13, "every five seconds"
    assert world.answers.only_node == [False] + [True] * (world.answers.asked - 1), "the API server is not asked again"
    world.feeds.on_change()
    await world.later()
    assert world.answers.only_node[-1] is False, "what has changed is asked for as a whole"
    world.viewer.hear('{"look": ""}')
    asked = world.answers.asked
    await world.later(60)
    assert world.answers.asked == asked
    await cancel_and_wait(serving)


async def test_slow_answers_about_a_pod_are_asked_for_a_fifth_of_the_time_at_most(world: World) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.answers.is_well, world.answers.slow = False, (world.clock, 5.0)
    world.put(POD, running("web", "10.0.1.2", "node1"))
    world.viewer.hear('{"look": "pod/shop/web"}')
    for _ in range(100):
        await world.later(1)
    assert 3 <= world.answers.asked <= 5
    await cancel_and_wait(serving)


@pytest.mark.parametrize(("by_node", "phase"), [(False, "Running"), (True, "Failed"), (True, "Succeeded")])
async def test_a_pod_that_no_node_knows_or_that_is_over_is_asked_about_once(
    world: World, by_node: bool, phase: str
) -> None:
    serving = asyncio.create_task(world.viewer.run())
    world.answers.is_well, world.answers.by_node = False, by_node
    pod = running("web", "10.0.1.2", "node1")
    pod["status"]["phase"] = phase
    world.put(POD, pod)
    world.viewer.hear('{"look": "pod/shop/web"}')
    for _ in range(30):
        await world.later(1)
    assert world.answers.asked == 1
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
    await world.later(FRESH)
    assert len(world.answers.wirings) == 1, "the answer could be one from before the change"
    await world.later(2)
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
