"""A container whose rule restarts all containers of its pod (KEP-5532), over the whole pod pipeline."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.errors import CriError
from agent.common.model.pods import RunState
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World

RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}


def source(name: str = "source", policy: str = "Never") -> Any:
    return container(name, restartPolicy=policy, restartPolicyRules=[RULE])


async def test_all_containers_restart_in_the_same_sandbox(world: World) -> None:
    world.create(
        source(),
        container("other"),
        initContainers=[container("first"), container("side", restartPolicy="Always")],
        restartPolicy="Never",
    )
    await world.until(lambda: world.cri.running() == ["first"])
    world.cri.exit("first")
    await world.until(world.is_ready)
    assert world.condition("AllContainersRestarting") == "False"
    sent = len(world.api.statuses)
    world.cri.exit("source", 42)
    await world.until(lambda: world.cri.running() == ["first"], step=0.01)
    # Statuses from before the first init container runs again.
    phases = {
        status["phase"]
        for status in world.api.statuses[sent:]
        if "running" not in status["initContainerStatuses"][0]["state"]
    }
    assert any(
        one["type"] == "AllContainersRestarting" and one["status"] == "True"
        for status in world.api.statuses
        for one in status["conditions"]
    )
    world.cri.exit("first")
    await world.until(world.is_ready)
    assert phases == {"Running"}
    for name in ("first", "side", "source", "other"):
        status = world.container_status(name)
        assert status["restartCount"] == 1, name
        assert status["lastState"]["terminated"]["reason"] == "RestartingAllContainers"
    assert world.cri.done("run_sandbox") == ["web/0"]
    assert world.condition("AllContainersRestarting") == "False"
    assert world.condition("Initialized") == "True"


async def test_the_restart_goes_on_after_the_agent_is_killed(world: World) -> None:
    world.create(source(), container("other"), restartPolicy="Never")
    await world.until(world.is_ready)
    await world.kill_agent()
    world.cri.exit("source", 42)
    await world.start_agent()
    await world.until(lambda: world.is_ready() and world.container_status("other")["restartCount"] == 1)
    assert world.container_status("source")["restartCount"] == 1


async def test_another_exit_code_restarts_nothing(world: World) -> None:
    world.create(source(), container("other"), restartPolicy="Never")
    await world.until(world.is_ready)
    world.cri.exit("source", 1)
    await world.until(lambda: "terminated" in world.container_status("source")["state"])
    assert world.cri.running() == ["other"]
    assert world.container_status("other")["restartCount"] == 0


async def test_one_that_ends_again_and_again_waits_longer_each_time(world: World) -> None:
    """Its records go with each restart: without a back-off a pod could have its node make containers without end."""
    world.create(source(), container("other"), restartPolicy="Never")
    waits = []
    for _ in range(5):
        began = world.clock.now()
        await world.until(lambda: sorted(world.cri.running()) == ["other", "source"], seconds=60, step=0.5)
        waits.append(world.clock.now() - began)
        world.cri.exit("source", 42)
        await settle(100)
    assert waits == pytest.approx([0, 0, 10, 20, 40], abs=2)
    assert world.cri.running() == []


@pytest.mark.parametrize("cut", [False, True])
async def test_the_restart_goes_on_after_the_agent_stops_during_the_first_start(world: World, cut: bool) -> None:
    """The runtime goes on with that start, or has cancelled it before anything of it ran."""
    world.create(source(), container("other"), initContainers=[container("first")], restartPolicy="Never")
    await world.until(lambda: world.cri.running() == ["first"])
    world.cri.exit("first")
    await world.until(world.is_ready)
    reached, held, asked = asyncio.Event(), asyncio.get_running_loop().create_future(), 0

    def hold(_: str) -> asyncio.Future[None]:
        reached.set()
        return held

    world.cri.before["start_container"] = hold
    world.cri.exit("source", 42)
    await world.until(reached.is_set)
    await world.stop_agent()
    del world.cri.before["start_container"]
    first = next(iter(world.cri.containers.values()))
    assert (len(world.cri.containers), first.name, first.state) == (1, "first", RunState.CREATED)

    def under_way(_: str) -> None:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise CriError("failed to set starting state: container is already in starting state")
        world.cri.before.clear()

    if cut:
        world.cri.containers[first.id] = replace(first, cut=True)
    else:
        world.cri.before["start_container"] = under_way
    await world.start_agent()
    await world.until(lambda: world.cri.running() == ["first"])
    world.cri.exit("first")
    await world.until(world.is_ready)
    assert {world.container_status(name)["restartCount"] for name in ("source", "other", "first")} == {1}
