"""A pod is Failed or Succeeded only once no process of it runs: policies, quotas and the scheduler count on that."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.common.model.pods import RunState
from agent.pods.model.facts import Cause, Termination
from nodelib.json_values import Json
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World
from tests.unit.agent.pods.test_pod import NOW, one, seen
from tests.unit.agent.pods.test_status import ONE, status

ENDED = ("Succeeded", "Failed")
DEADLINE = Termination(Cause.DEADLINE, NOW, 3600, "DeadlineExceeded", "too long")
# Whoever makes a pod chooses for how long it may go on after its deadline.
SPEC: Json = {"restartPolicy": "Never", "activeDeadlineSeconds": 20, "terminationGracePeriodSeconds": 600}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    made.cri.ignores_term.add("main")
    await made.start_agent()
    yield made
    await made.kill_agent()


def told_as_ended(world: World) -> bool:
    return any(one["phase"] in ENDED for one in world.api.statuses)


async def test_a_container_in_its_post_start_hook_runs(world: World) -> None:
    hook = {"postStart": {"sleep": {"seconds": 3600}}}
    world.create(container("first"), container("main", lifecycle=hook), **SPEC)
    await world.until(lambda: world.cri.running() == ["first", "main"])
    await world.clock.advance(30)
    world.cri.exit("first")  # the news on which the deadline is noticed, while the hook still runs
    await settle(100)
    assert world.cri.running() == ["main"] and not told_as_ended(world)
    await world.until(lambda: world.phase() == "Failed", seconds=700)
    assert world.cri.running() == [] and world.status()["reason"] == "DeadlineExceeded"


async def test_a_container_that_is_being_started_is_waited_for(world: World) -> None:
    async def slow(what: str) -> None:
        if what.startswith("main"):
            await world.clock.sleep(30)

    world.cri.before["start_container"] = slow
    world.create(container("first"), container("main"), **SPEC)
    await world.until(lambda: world.cri.running() == ["first"])
    await world.clock.advance(25)
    world.cri.exit("first")
    await settle(100)
    assert world.cri.running() == [] and not told_as_ended(world), "main will run in a moment"
    await world.clock.advance(60)
    assert world.cri.running() == ["main"] and not told_as_ended(world)
    await world.until(lambda: world.phase() == "Failed", seconds=700)
    assert world.cri.running() == []


def test_a_container_whose_state_the_runtime_does_not_know_may_run() -> None:
    lost = seen(one(ONE, "a", RunState.UNKNOWN))
    assert status(ONE, lost, termination=DEADLINE, previous={"phase": "Running"})["phase"] == "Running"
