"""When pods are listed: refreshes by a step, exits that an event reports, and the audit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agent.common.model.pods import ContainerState, RunState
from agent.runtime.model import RuntimeEvent
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World

LISTS = ("list_sandboxes", "list_containers")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.start_agent(audits=False)
    yield made
    await made.kill_agent()


def asked(world: World, *methods: str) -> list[str]:
    return [method for method, _ in world.cri.calls if method in methods]


def seen(world: World, name: str = "main") -> ContainerState:
    found = world.deps.observer.seen("u1").latest(name)
    assert found is not None
    return found


async def started(world: World) -> None:
    world.create(container("main"), container("other"), restartPolicy="Never")
    await world.until(world.is_ready)
    world.cri.calls.clear()


async def test_a_pod_comes_and_goes_without_a_list(world: World) -> None:
    world.cri.calls.clear()
    world.create()
    await world.until(world.is_ready)
    world.api.ask_deletion("u1", 1)
    await world.until(world.is_gone)
    assert asked(world, *LISTS) == []
    assert asked(world, "sandbox_status", "container_status").count("sandbox_status") == 2


async def test_an_exit_that_an_event_reports_needs_no_call(world: World) -> None:
    await started(world)
    world.cri.exit("main", 3)
    await world.until(lambda: "terminated" in world.container_status().get("state", {}))
    assert asked(world, *LISTS, "container_status") == []
    assert world.container_status()["state"]["terminated"]["exitCode"] == 3
    assert seen(world).sandbox_id == seen(world, "other").sandbox_id


async def test_an_exit_beside_another_hint_is_listed(world: World) -> None:
    await started(world)
    ended = world.cri.exit("main", 3)
    world.deps.observer.hint("u1", ended)
    world.deps.observer.hint("u1")
    await world.until(lambda: seen(world).state is RunState.EXITED)
    assert set(asked(world, *LISTS)) == set(LISTS)


async def test_an_exit_of_an_unknown_container_is_listed(world: World) -> None:
    await started(world)
    strange = replace(seen(world), id="c99", state=RunState.EXITED)
    world.cri.send(RuntimeEvent("u1", "c99", "CONTAINER_STOPPED_EVENT", strange))
    await settle()
    assert set(asked(world, *LISTS)) == set(LISTS)
    assert world.deps.observer.seen("u1").latest("main") == seen(world) and len(world.cri.containers) == 2


async def test_a_refresh_that_began_before_the_exit_does_not_undo_it(world: World) -> None:
    """Its list still shows the container running, and comes late."""
    await started(world)
    reached, held = asyncio.Event(), asyncio.get_running_loop().create_future()

    def hold(_: str) -> asyncio.Future[None]:
        reached.set()
        return held

    world.cri.before["list_containers"] = hold
    refreshing = asyncio.create_task(world.deps.observer.refresh("u1"))
    await asyncio.wait_for(reached.wait(), 10)
    world.cri.before.clear()
    world.cri.exit("main", 3)
    await settle()
    held.set_result(None)
    await refreshing
    await world.until(lambda: seen(world).state is RunState.EXITED)
    await world.clock.advance(30)
    assert seen(world).exit_code == 3


async def test_an_audit_that_began_before_a_step_does_not_undo_what_it_saw(world: World) -> None:
    world.create()
    reached, held = asyncio.Event(), asyncio.get_running_loop().create_future()

    def hold(uid: str) -> asyncio.Future[None] | None:
        if uid:
            return None
        reached.set()
        return held

    world.cri.before["list_containers"] = hold
    auditing = asyncio.create_task(world.deps.observer.audit())
    await asyncio.wait_for(reached.wait(), 10)
    await world.until(world.is_ready)
    held.set_result(None)
    world.cri.before.clear()
    await auditing
    assert seen(world).state is RunState.RUNNING


async def test_nothing_is_kept_of_pods_that_are_gone(world: World) -> None:
    for number in range(3):
        uid = f"u{number}"
        world.create(name=f"web{number}", uid=uid)
        await world.until(lambda uid=uid: world.is_ready(uid))  # type: ignore[misc]
        world.api.ask_deletion(uid, 1)
        await world.until(lambda uid=uid: world.is_gone(uid))  # type: ignore[misc]
    await settle()
    kept = {name: value for name, value in vars(world.deps.observer).items() if "'u" in repr(value)}
    assert kept == {}, "nothing that the observer holds mentions a UID"


@pytest.mark.parametrize("uid", ["..", ".", "", "../../etc", "a/b", "x\n", "a" * 200])
async def test_what_has_no_uid_of_a_pod_is_shown_to_nobody(world: World, uid: str) -> None:
    """Its folder would be removed with it: that of `..` is the kubelet's own."""
    metadata = {"name": "x", "namespace": "y", "uid": uid, "attempt": 0}
    made = await world.cri.run_sandbox({"metadata": metadata})
    await world.deps.observer.audit()
    world.deps.observer.hint(uid)
    await settle()
    assert world.deps.observer.uids() == frozenset() and list(world.cri.sandboxes) == [made]
