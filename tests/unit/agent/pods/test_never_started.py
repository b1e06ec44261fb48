"""A container that was created and never ran is no restart, whatever failed before it could be started."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent.common.model.errors import CriError, CriUnavailable
from agent.common.model.pods import ContainerState, RunState
from nodelib.json_values import Json
from tests.builders.pods import container
from tests.fakes.pod_world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.kill_agent()


def only(world: World) -> ContainerState:
    found = list(world.cri.containers.values())
    assert len(found) == 1, found
    return found[0]


async def never_restarted(world: World) -> ContainerState:
    """The one container of the pod, once it is ready: the first attempt, which was started once."""
    await world.until(world.is_ready)
    one = only(world)
    assert (one.attempt, one.state) == (0, RunState.RUNNING)
    assert world.container_status()["restartCount"] == 0 and world.container_status()["lastState"] == {}
    assert set(world.cri.starts.values()) == {1}
    return one


async def test_a_container_that_another_call_was_creating_is_taken_over(world: World) -> None:
    """The call of an agent that was killed may end after the new agent has looked: then its name is taken."""
    made, create = list[str](), world.cri.create_container

    async def taken(sandbox_id: str, config: Json, sandbox_config: Json) -> str:
        if not made:
            made.append(await create(sandbox_id, config, sandbox_config))
        return await create(sandbox_id, config, sandbox_config)

    world.cri.create_container = taken  # type: ignore[method-assign]  # the other call comes first
    await world.start_agent()
    world.create(container("main"))
    assert (await never_restarted(world)).id == made[0]
    assert "Failed" in world.events.reasons(), "the name was taken"


async def test_an_image_that_cannot_be_inspected_once(world: World) -> None:
    """The agent is killed between create and start, and its successor fails to look at the image."""
    world.cri.fail["start_container"] = [CriUnavailable("gone", code="UNAVAILABLE")]
    world.cri.before["start_container"] = lambda _: world.cri.fail.update(image_status=[CriError("no room")])
    await world.start_agent()
    world.create(container("main"))
    await world.until(lambda: world.cri.done("start_container"))
    created = only(world)
    world.cri.before.clear()
    assert (await never_restarted(world)).id == created.id


@pytest.mark.parametrize("times", [1, 3])
async def test_a_runtime_that_goes_away_before_it_starts_the_container(world: World, times: int) -> None:
    """The container is still there as it was created: it is started again, not replaced."""
    world.cri.fail["start_container"] = [CriUnavailable("connection reset", code="UNAVAILABLE")] * times
    await world.start_agent()
    world.create(container("main"))
    await world.until(lambda: world.cri.containers)
    created = only(world)
    assert (await never_restarted(world)).id == created.id


async def test_a_start_that_is_cancelled_while_it_is_waited_for(world: World) -> None:
    """The call of the killed agent was under way, and then the runtime gives it up."""
    await world.start_agent()
    asked = 0

    def give_up(_: str) -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise CriUnavailable("the agent is killed here", code="CANCELLED")
        if asked == 2:
            raise CriError("failed to set starting state: container is already in starting state")
        if asked == 3:
            one = only(world)
            world.cri.containers[one.id] = replace(one, cut=True)
            raise CriError("container is in CONTAINER_EXITED state")

    world.cri.before["start_container"] = give_up
    world.create(container("main"), restartPolicy="Never")
    await world.until(lambda: world.cri.containers)
    cancelled = only(world)
    assert (await never_restarted(world)).id != cancelled.id
    assert asked == 4


async def test_a_container_that_cannot_be_started_at_all_is_replaced_in_the_end(world: World) -> None:
    """It may be stuck in the runtime. Then it counts as a restart, as upstream counts it at once."""
    await world.start_agent()

    def stuck(what: str) -> None:
        if what == "main/0":
            raise CriUnavailable("timed out", code="DEADLINE_EXCEEDED")

    world.cri.before["start_container"] = stuck
    world.create(container("main"))
    await world.until(world.is_ready, seconds=120)
    assert world.container_status()["restartCount"] == 1
    assert only(world).attempt == 1, "the stuck one was removed"
    assert len([what for what in world.cri.done("start_container") if what == "main/0"]) == 4
