"""A container whose rule restarts all containers of its pod (KEP-5532), over the whole pod pipeline."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.fakes.pod_world import World, container

RULE = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.start_agent()
    yield made
    await made.kill_agent()


def source(name: str = "source", policy: str = "Never") -> Any:
    return container(name, restartPolicy=policy, restartPolicyRules=[RULE])


async def test_all_containers_start_again_in_the_same_sandbox(world: World) -> None:
    phases: set[str] = set()
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
    world.cri.exit("source", 42)

    def first_again() -> bool:
        phases.add(world.phase())
        return world.cri.running() == ["first"]

    await world.until(first_again, step=0.01)
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


async def test_an_agent_killed_in_the_middle_goes_on_with_it(world: World) -> None:
    world.create(source(), container("other"), restartPolicy="Never")
    await world.until(world.is_ready)
    await world.kill_agent()
    world.cri.exit("source", 42)
    await world.start_agent()
    await world.until(lambda: world.is_ready() and world.container_status("other")["restartCount"] == 1)
    assert world.container_status("source")["restartCount"] == 1


async def test_another_exit_code_is_not_meant(world: World) -> None:
    world.create(source(), container("other"), restartPolicy="Never")
    await world.until(world.is_ready)
    world.cri.exit("source", 1)
    await world.until(lambda: "terminated" in world.container_status("source")["state"])
    assert world.cri.running() == ["other"]
    assert world.container_status("other")["restartCount"] == 0
