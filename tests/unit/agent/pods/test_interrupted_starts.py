"""An agent that is killed while the runtime starts a sandbox or container: that counts and shows as no restart.

Either the call goes on without the agent (runtime/edge/starts.py), and the next agent finds it running or done; or
containerd cancels it and leaves a container that can never be started, whose process has never run.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent.common.model.errors import CriError
from agent.common.model.pods import ContainerState, RunState
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World


@pytest.fixture
async def killed() -> AsyncIterator[World]:
    """A world whose agent was killed during a start that the runtime had not begun."""
    world = World()
    await world.start_agent()
    reached, held = asyncio.Event(), asyncio.get_running_loop().create_future()

    def hold(_: str) -> asyncio.Future[None]:
        reached.set()
        return held

    world.cri.before["start_container"] = hold
    yield_when = asyncio.create_task(reached.wait())
    world.create(container("main"), restartPolicy="Never")
    await asyncio.wait_for(yield_when, 5)
    world.cri.before.clear()
    await world.kill_agent()
    yield world
    await world.kill_agent()


def only(world: World) -> ContainerState:
    found = list(world.cri.containers.values())
    assert len(found) == 1
    return found[0]


async def test_a_cancelled_start_is_repeated_as_the_same_attempt(killed: World) -> None:
    """With restartPolicy Never too: upstream's pod would have Failed."""
    cancelled = only(killed)
    killed.cri.containers[cancelled.id] = replace(cancelled, cut=True)
    await killed.start_agent()
    await killed.until(killed.is_ready)
    now = only(killed)
    assert (now.id != cancelled.id, now.attempt, now.state) == (True, 0, RunState.RUNNING)
    assert killed.container_status()["restartCount"] == 0 and killed.container_status()["lastState"] == {}
    assert killed.phase() == "Running" and "Failed" not in killed.events.reasons()


async def test_it_is_still_the_same_attempt_if_the_agent_is_killed_a_second_time(killed: World) -> None:
    """By then only the API knows of the container, as a waiting one."""
    cancelled = only(killed)
    killed.cri.containers[cancelled.id] = replace(cancelled, cut=True)
    reached, held = asyncio.Event(), asyncio.get_running_loop().create_future()

    def hold(_: str) -> asyncio.Future[None]:
        reached.set()
        return held

    killed.cri.before["create_container"] = hold
    await killed.start_agent()
    await asyncio.wait_for(reached.wait(), 5)
    await killed.clock.advance(1)
    await killed.kill_agent()
    killed.cri.before.clear()
    assert killed.cri.containers == {}
    killed.api.update("u1", lambda raw: raw["status"]["containerStatuses"][0].update(containerID="containerd://c1"))
    await killed.start_agent()
    await killed.until(killed.is_ready)
    assert killed.container_status()["restartCount"] == 0


async def test_a_start_that_is_still_running_is_waited_for(killed: World) -> None:
    one, asked = only(killed), 0

    def under_way(_: str) -> None:
        nonlocal asked
        asked += 1
        if asked < 4:
            raise CriError("failed to set starting state: container is already in starting state")
        if asked == 4:
            started = replace(only(killed), state=RunState.RUNNING, started_at=1)
            killed.cri.containers[one.id] = started

    killed.cri.before["start_container"] = under_way
    await killed.start_agent()
    await killed.until(killed.is_ready)
    assert only(killed).id == one.id and asked == 4
    assert killed.container_status()["restartCount"] == 0
    assert "Failed" not in killed.events.reasons()


async def test_a_start_that_never_ends_is_reported_as_failed(killed: World) -> None:
    def under_way(_: str) -> None:
        raise CriError("container is already in starting state")

    killed.cri.before["start_container"] = under_way
    began = killed.clock.monotonic()
    await killed.start_agent()
    await killed.until(lambda: "Failed" in killed.events.reasons(), seconds=90)
    assert 55 <= killed.clock.monotonic() - began <= 65
    await killed.until(lambda: "waiting" in killed.container_status().get("state", {}))
    assert killed.container_status()["state"]["waiting"]["reason"] == "RunContainerError"
    killed.cri.before.clear()


async def killed_in_sandbox(world: World, asked: list[str], made_after: int) -> None:
    """An earlier agent's RunPodSandbox goes on after its end. It is done after so many tries of the next agent; its
    sandbox is listed then."""
    await world.start_agent()
    reached, held = asyncio.Event(), asyncio.get_running_loop().create_future()

    def hold(_: str) -> asyncio.Future[None]:
        reached.set()
        return held

    world.cri.before["run_sandbox"] = hold
    uid = world.create(container("main"), restartPolicy="Never")
    await asyncio.wait_for(reached.wait(), 5)
    await world.kill_agent()

    async def reserved(what: str) -> None:
        asked.append(what)
        if len(asked) == made_after:
            world.cri.before.clear()
            await world.cri.run_sandbox({"metadata": {"name": "web", "namespace": "d", "uid": uid, "attempt": 0}})
            return  # the name is reserved for the one that is there now
        raise CriError('failed to reserve sandbox name "web": name "web" is reserved for "s1"')

    world.cri.before["run_sandbox"] = reserved


@pytest.mark.parametrize("made_after", [1, 2, 40])
async def test_a_sandbox_that_is_still_being_made_is_waited_for_and_adopted(made_after: int) -> None:
    world, asked = World(), list[str]()
    await killed_in_sandbox(world, asked, made_after)
    await world.start_agent()
    await world.until(world.is_ready, seconds=120)
    assert len(asked) == made_after
    assert [(one.attempt, one.ready) for one in world.cri.sandboxes.values()] == [(0, True)]
    assert "FailedCreatePodSandBox" not in world.events.reasons()
    assert world.container_status()["restartCount"] == 0 and max(world.cri.starts.values()) == 1
    await world.kill_agent()


async def test_other_pods_start_while_a_sandbox_is_waited_for() -> None:
    world, asked = World(), list[str]()
    await killed_in_sandbox(world, asked, 10_000)
    hold = world.cri.before["run_sandbox"]
    world.cri.before["run_sandbox"] = lambda what: hold(what) if what.startswith("web/") else None
    await world.start_agent()
    await world.until(lambda: len(asked) >= 3)
    world.create(container("other"), name="other", uid="u2")
    await world.until(lambda: world.cri.running() == ["other"], seconds=5)
    await world.kill_agent()


async def test_a_sandbox_that_is_never_made_is_reported_as_failed() -> None:
    world, asked = World(), list[str]()
    await killed_in_sandbox(world, asked, 10_000)
    began = world.clock.monotonic()
    await world.start_agent()
    await world.until(lambda: "FailedCreatePodSandBox" in world.events.reasons(), seconds=400)
    assert 295 <= world.clock.monotonic() - began <= 310
    assert len(asked) < 300
    await world.kill_agent()


async def test_a_stopping_agent_waits_for_a_running_start() -> None:
    """SIGTERM: the running start is waited for, and nothing new is started."""
    world = World()
    await world.start_agent()
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def hold(_: str) -> None:
        reached.set()
        await go_on.wait()

    world.cri.before["start_container"] = hold
    world.create(container("main", lifecycle={"postStart": {"exec": {"command": ["hook"]}}}))
    await asyncio.wait_for(reached.wait(), 5)
    closing = asyncio.create_task(world.workers.close(patience=30))
    await settle()
    assert not closing.done()
    go_on.set()
    await asyncio.wait_for(closing, 5)
    assert world.cri.running() == ["main"]
    await world.kill_agent()


async def test_a_start_that_fails_while_its_pod_is_deleted_leaves_no_stray_exception() -> None:
    world, stray, reached, go_on = World(), list[object](), asyncio.Event(), asyncio.Event()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: stray.append(context))
    await world.start_agent()

    async def fail_late(_: str) -> None:
        reached.set()
        await go_on.wait()
        raise CriError("no room")

    world.cri.before["create_container"] = fail_late
    uid = world.create(container("main"), terminationGracePeriodSeconds=1)
    await asyncio.wait_for(reached.wait(), 5)
    world.api.ask_deletion(uid, 1)
    await settle()
    go_on.set()
    world.cri.before.clear()
    await world.until(world.is_gone)
    await world.kill_agent()
    gc.collect()
    await settle()
    assert stray == []
