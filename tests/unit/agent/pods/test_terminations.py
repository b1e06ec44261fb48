"""Terminations go on after a restart of the agent, with the same grace and reason."""

from __future__ import annotations

from typing import Any

from agent.common.model.eviction import Eviction
from agent.pods.work.terminations import NAME, Terminations
from nodelib.errors import Temporary
from tests.fakes.clock import FakeClock, settle
from tests.fakes.pod_world import FakeCheckpoints, World


async def _running(world: World, **spec: Any) -> None:
    world.create(**spec)
    await world.until(lambda: world.phase() == "Running")
    world.cri.ignores_term.add("main")


async def test_a_restart_gives_no_new_grace(world: World) -> None:
    await _running(world, terminationGracePeriodSeconds=30)
    world.api.ask_deletion("u1", 30)
    await world.clock.advance(20)
    await world.kill_agent()
    await world.start_agent()
    began = world.clock.monotonic()
    await world.until(lambda: "u1" not in world.api.pods)
    assert world.clock.monotonic() - began <= 13


async def test_an_eviction_survives_a_restart(world: World) -> None:
    await _running(world)
    pod = world.registry.pod("shop", "web")
    assert pod is not None
    world.registry.evict(Eviction(pod, "Evicted", "The node was low on resource: memory. ", 10, disrupted=True))
    await world.clock.advance(3)
    await world.kill_agent()
    await world.start_agent()
    await world.until(lambda: world.phase() == "Failed", seconds=20)
    assert world.status()["reason"] == "Evicted"
    assert any(one["type"] == "DisruptionTarget" for one in world.status()["conditions"])


async def test_a_short_termination_is_never_written(world: World) -> None:
    world.create()
    await world.until(lambda: world.phase() == "Running")
    world.api.ask_deletion("u1", 30)
    await world.until(lambda: "u1" not in world.api.pods)
    await world.clock.advance(5)
    assert NAME not in world.checkpoints.files


async def test_a_record_is_removed_with_its_pod(world: World) -> None:
    await _running(world, terminationGracePeriodSeconds=5)
    world.api.ask_deletion("u1", 5)
    await world.clock.advance(2)
    assert "u1" in world.checkpoints.files[NAME]
    await world.until(lambda: "u1" not in world.api.pods)
    await world.clock.advance(3)
    assert "u1" not in world.checkpoints.files[NAME]


async def test_an_unreadable_checkpoint_is_set_aside() -> None:
    files = FakeCheckpoints()
    files.files[NAME] = '{"endings": 7}'
    terminations = Terminations(files, FakeClock())
    await terminations.load()
    assert list(files.files) == [f"{NAME}.unreadable"]
    assert terminations.of("u1") is None


async def test_a_failed_write_is_tried_again(world: World) -> None:
    await _running(world, terminationGracePeriodSeconds=60)
    await world.clock.advance(5)
    world.checkpoints.fail = [Temporary("disk full")]
    world.api.ask_deletion("u1", 60)
    await settle()
    await world.clock.advance(5)
    assert "u1" in world.checkpoints.files[NAME]
