"""A pod's IDs are free again when nothing of the pod runs any more, and not before."""

from __future__ import annotations

from agent.pods.work import orphan_cleanup
from tests.builders.pods import pod
from tests.fakes.pod_world import World


async def first_id(world: World, uid: str) -> int:
    found = await world.user_namespaces.of(pod(meta={"uid": uid}, hostUsers=False), "", {""})
    return int(found["uids"][0]["host_id"])


async def test_of_a_pod_that_is_deleted(world: World) -> None:
    world.create(hostUsers=False)
    await world.until(world.is_ready)
    mine = await first_id(world, "u1")
    world.cri.ignores_term.add("main")
    world.api.ask_deletion("u1", 30)
    await world.clock.advance(10)
    assert world.cri.running() == ["main"]
    assert await first_id(world, "other") != mine
    await world.until(lambda: world.is_gone("u1"))
    assert await first_id(world, "next") == mine


async def test_of_a_pod_that_an_earlier_agent_left(world: World) -> None:
    world.volumes.mounted |= {"u1", "known"}
    mine, known = await first_id(world, "u1"), await first_id(world, "known")
    await orphan_cleanup.remove(world.deps, lambda uid: uid == "known")
    assert await first_id(world, "next") == mine
    assert await first_id(world, "known") == known
