"""Hundreds of containers of one namespace that are to end together."""

from __future__ import annotations

import asyncio
from typing import Any

from agent.common.model.eviction import Eviction
from agent.common.work.gate import Gate
from agent.pods.work.ends import Ends
from nodelib.json_values import Json
from tests.builders.pods import container, pod_json
from tests.fakes.clock import settle
from tests.fakes.pod_world import World


class Held:
    """Calls of the runtime that end when a test says so."""

    def __init__(self, world: World, *calls: str) -> None:
        self.begun: list[str] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._world, self._calls = world, calls
        for call in calls:
            world.cri.before[call] = self._hold

    def _hold(self, what: str) -> asyncio.Future[None]:
        self.begun.append(what)
        self._waiting.append(asyncio.get_running_loop().create_future())
        return self._waiting[-1]

    def let_go(self, number: int) -> None:
        for one in self._waiting[:number]:
            one.set_result(None)
        del self._waiting[:number]

    def end(self) -> None:
        for call in self._calls:
            del self._world.cri.before[call]
        self.let_go(len(self._waiting))


async def crowd(**more: Any) -> World:
    """Five pods of six containers in one namespace, and one of another, which all run. `more` of each container."""
    world = World()
    world.ends = Ends(Gate(4, longest=None), Gate(1, longest=None))
    await world.start_agent()
    for number in range(5):
        boxes = (container(f"c{number}-{one}", **more) for one in range(6))
        world.create(*boxes, name=f"p{number}", uid=f"u{number}")
    meta = {"namespace": "other", "uid": "u9"}
    other = pod_json("other", container("theirs", **more), meta=meta, restartPolicy="Always")
    world.api.create(other)
    await world.until(lambda: len(world.cri.running()) == 31)
    return world


async def four_at_a_time(world: World, call: str) -> None:
    """All of a crowd are deleted: so many calls of that kind are under way together, and in the end all are gone."""
    held = Held(world, call)
    for number in (*range(5), 9):
        world.api.ask_deletion(f"u{number}", 30)
    await world.until(lambda: len(held.begun) >= 4, step=0.1)
    await settle()
    assert len(held.begun) == 4
    held.end()
    await world.until(lambda: not world.api.pods)
    await world.kill_agent()


async def one_pod(*containers: Json, **spec: Any) -> World:
    """Which runs, where one container may end at a time."""
    world = World()
    world.ends = Ends(Gate(1, longest=None), Gate(1, longest=None))
    await world.start_agent()
    world.create(*containers, **spec)
    count = len(containers) + len(spec.get("initContainers", ()))
    await world.until(lambda: len(world.cri.running()) == count)
    return world


async def test_a_few_containers_of_a_node_are_ended_at_once_and_namespaces_take_turns() -> None:
    """Beside 300 of ten pods that were deleted together, the pod of another namespace started after 16 s, not 0.4."""
    world = await crowd()
    held = Held(world, "stop_container")
    for number in range(5):
        world.api.ask_deletion(f"u{number}", 30)
    await world.until(lambda: len(held.begun) >= 4, step=0.1)
    world.api.ask_deletion("u9", 30)
    await world.clock.advance(1)
    await settle()
    assert len(held.begun) == 4
    held.let_go(1)
    await world.until(lambda: len(held.begun) > 4, step=0.1)
    assert world.cri.containers[held.begun[4].split()[0]].name == "theirs"
    held.end()
    await world.until(lambda: not world.cri.running())
    await world.kill_agent()


def pre_stop(**hook: Json) -> Json:
    return {"preStop": hook}


async def test_the_commands_of_hooks_are_run_in_turn_too() -> None:
    """All of a node were run at once: beside 300 of ten pods, the pod of another namespace started after 17 s."""
    world = await crowd(lifecycle=pre_stop(exec={"command": ["drain"]}))
    await four_at_a_time(world, "exec_sync")


async def test_a_hook_that_is_no_command_waits_for_nobody() -> None:
    world = await one_pod(container("main", lifecycle=pre_stop(sleep={"seconds": 5})))
    async with world.ends.turn(""):
        world.api.ask_deletion("u1", 30)
        await world.until(lambda: world.ends.waiting)
    await world.until(world.is_gone)
    assert [one.split()[1] for one in world.cri.done("stop_container")] == ["25"]
    await world.kill_agent()


async def test_the_grace_of_a_container_begins_with_its_hook() -> None:
    world = await one_pod(container("main", lifecycle=pre_stop(exec={"command": ["drain"]})))
    world.cri.before["exec_sync"] = lambda what: world.clock.sleep(10)
    async with world.ends.turn(""):
        world.api.ask_deletion("u1", 30)
        await world.until(lambda: world.ends.waiting)
        await world.clock.advance(25)
        assert not world.cri.done("exec_sync")
    await world.until(world.is_gone)
    assert [one.split()[1] for one in world.cri.done("stop_container")] == ["20"]
    await world.kill_agent()


async def test_a_hook_that_waits_is_run_though_there_is_less_grace() -> None:
    """It counted as run, and never was."""
    world = await one_pod(container("main", lifecycle=pre_stop(exec={"command": ["drain"]})))
    async with world.ends.turn(""):
        world.api.ask_deletion("u1", 30)
        await world.until(lambda: world.ends.waiting)
        world.api.ask_deletion("u1", 5)
        await settle()
    await world.until(world.is_gone)
    assert world.cri.done("exec_sync") == ["drain"]
    await world.kill_agent()


async def test_sandboxes_are_ended_in_turn_too() -> None:
    world = await crowd()
    await four_at_a_time(world, "stop_sandbox")


async def test_a_pod_that_the_node_ends_to_help_itself_waits_for_nobody() -> None:
    world = await crowd()
    async with world.ends.turn(""), world.ends.turn(""), world.ends.turn(""), world.ends.turn(""):
        world.api.ask_deletion("u0", 30)
        await world.until(lambda: world.ends.waiting == 6, step=0.1)
        memory = world.registry.memory("u9")
        assert memory is not None
        world.registry.evict(Eviction(memory.pod, "Evicted", "no memory", 1, disrupted=True))
        await world.until(lambda: len(world.cri.running()) == 30)
        assert world.ends.waiting == 6
    await world.kill_agent()


async def test_the_grace_of_a_container_begins_when_it_is_told_to_end() -> None:
    world = await one_pod(container("main"))
    async with world.ends.turn(""):
        world.api.ask_deletion("u1", 30)
        await world.until(lambda: world.ends.waiting)
        await world.clock.advance(20)
    await world.until(world.is_gone)
    assert [one.split()[1] for one in world.cri.done("stop_container")] == ["30"]
    await world.kill_agent()


async def test_what_waits_for_a_place_takes_no_grace_from_what_ends_later() -> None:
    """Sidecars end after all others, and share the pod's grace with them: they had two seconds, or none."""
    sidecar = {**container("proxy"), "restartPolicy": "Always"}
    world = await one_pod(container("main"), container("other"), initContainers=[sidecar])
    async with world.ends.turn(""):
        world.api.ask_deletion("u1", 30)
        await world.until(lambda: world.ends.waiting == 2)
        await world.clock.advance(40)
    await world.until(world.is_gone)
    assert [one.split()[1] for one in world.cri.done("stop_container")] == ["30", "30", "30"]
    await world.kill_agent()


async def test_a_container_that_ends_while_it_waits_is_not_stopped() -> None:
    world = await one_pod(container("main"))
    async with world.ends.turn(""):
        world.api.ask_deletion("u1", 30)
        await world.until(lambda: world.ends.waiting)
        world.cri.exit("main")
        await settle()
    await world.until(world.is_gone)
    assert world.cri.done("stop_container") == []
    await world.kill_agent()


async def test_less_grace_counts_for_what_waits() -> None:
    """`kubectl delete --grace-period=1` after a `delete`, while it waits for a place."""
    world = await one_pod(container("main"))
    async with world.ends.turn(""):
        world.api.ask_deletion("u1", 30)
        await world.until(lambda: world.ends.waiting)
        world.api.ask_deletion("u1", 1)
        await settle()
    await world.until(world.is_gone)
    assert [one.split()[1] for one in world.cri.done("stop_container")] == ["2"]
    await world.kill_agent()


async def test_fewer_end_while_a_pod_of_another_namespace_starts() -> None:
    """Four at a time at two processors were starts of 3.5 s."""
    world = await crowd()
    held = Held(world, "stop_container")
    with world.ends.starting("other"):
        for number in range(5):
            world.api.ask_deletion(f"u{number}", 30)
        await world.until(lambda: world.ends.waiting == 29, step=0.1)
        assert len(held.begun) == 1
    with world.ends.starting("shop"):  # its own: those wait for nobody
        held.let_go(1)
        await world.until(lambda: len(held.begun) == 3, step=0.1)
    held.end()
    await world.until(lambda: len(world.cri.running()) == 1)
    await world.kill_agent()


async def test_what_is_started_is_known_to_those_that_end() -> None:
    """Sandboxes and containers."""
    world = World()
    await world.start_agent()
    held = Held(world, "run_sandbox", "create_container")
    world.create(container("main"))
    for _ in range(2):
        await world.until(lambda: held.begun, step=0.1)
        held.begun.clear()
        assert world.ends.start_elsewhere("other") and not world.ends.start_elsewhere("shop")
        held.let_go(1)
    held.end()
    await world.until(lambda: world.cri.running())
    await settle()
    assert not world.ends.start_elsewhere("other")
    await world.kill_agent()
