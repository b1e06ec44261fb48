"""A pod with more containers than anybody needs."""

from __future__ import annotations

import asyncio

from agent.common.work.gate import Gate
from tests.builders.pods import container, pod_json
from tests.fakes.clock import settle
from tests.fakes.pod_world import World


async def test_a_few_containers_of_a_pod_are_started_at_once() -> None:
    """Each start is several processes of the runtime: of one pod with thousands they would be the node's only ones."""
    world = World()
    world.start_gate = Gate(100)
    await world.start_agent()
    held = asyncio.get_running_loop().create_future()
    begun = list[str]()

    def hold(what: str) -> asyncio.Future[None]:
        begun.append(what)
        return held

    world.cri.before["create_container"] = hold
    world.create(*(container(f"c{number}") for number in range(40)))
    await world.until(lambda: begun, step=0.1)
    assert len(begun) == 8
    held.set_result(None)
    await world.until(lambda: len(world.cri.running()) == 40)
    await world.kill_agent()


async def test_a_few_containers_of_a_node_are_started_at_once_and_namespaces_take_turns() -> None:
    """Beside 300 of ten pods, the pod of another namespace started after 29 s instead of 0.4."""
    world = World()
    await world.start_agent()
    begun: dict[str, asyncio.Future[None]] = {}
    held = list[asyncio.Future[None]]()

    def hold(what: str) -> asyncio.Future[None]:
        held.append(asyncio.get_running_loop().create_future())
        return begun.setdefault(what, held[-1])

    world.cri.before["create_container"] = hold
    for number in range(5):
        boxes = (container(f"c{number}-{one}") for one in range(8))
        world.create(*boxes, name=f"p{number}", uid=f"u{number}")
    await world.until(lambda: len(begun) >= 4, step=0.1)
    other = pod_json("other", container("theirs"), meta={"namespace": "other", "uid": "u9"}, restartPolicy="Always")
    world.api.create(other)
    await world.clock.advance(1)
    await settle()
    assert len(begun) == 4
    held[0].set_result(None)
    await world.until(lambda: len(begun) > 4, step=0.1)
    assert "theirs/0" in begun
    world.cri.before.clear()
    for one in held[1:]:
        one.set_result(None)
    await world.until(lambda: len(world.cri.running()) == 41)
    await world.kill_agent()


async def test_a_start_that_waits_for_a_place_ends_with_its_pod() -> None:
    """Without a look at whether those who have the places leave them."""
    world = World()
    world.start_gate = Gate(1, longest=None)
    await world.start_agent()
    async with world.start_gate.place():
        world.create(container("main"))
        await world.until(lambda: world.start_gate.waiting)
        world.api.ask_deletion("u1", 30)
        await world.until(world.is_gone)
        assert world.start_gate.waiting == 0
    await world.kill_agent()
