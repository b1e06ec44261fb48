"""A pod with more containers than anybody needs."""

from __future__ import annotations

import asyncio

from tests.builders.pods import container
from tests.fakes.pod_world import World


async def test_a_few_containers_of_a_pod_are_started_at_once() -> None:
    """Each start is several processes of the runtime: of one pod with thousands they would be the node's only ones."""
    world = World()
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
