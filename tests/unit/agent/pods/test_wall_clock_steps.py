"""Somebody sets the machine's clock by an hour or by days: no delay, back-off, deadline or grace moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.common.model.errors import CriError
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World

STEPS = [pytest.param(step * sign, id=f"{sign * step} s") for step in (3600, 2 * 86400) for sign in (1, -1)]


async def _seconds_until(world: World, what: Callable[[], object], limit: float = 400) -> float:
    began = world.clock.monotonic()
    await world.until(what, seconds=limit)
    return world.clock.monotonic() - began


def _step(world: World, seconds: float) -> None:
    """Set the clock, and let something happen that makes every pod be planned again."""
    world.clock.step(seconds)
    world.registry.wake("u1")


@pytest.mark.parametrize("step", STEPS)
async def test_a_failed_step_is_tried_again_as_soon_as_ever(world: World, step: float) -> None:
    world.volumes.missing = 'secret "s" not found'
    world.create()
    await world.clock.advance(10)
    _step(world, step)
    world.volumes.missing = ""
    assert await _seconds_until(world, world.is_ready) <= 15


@pytest.mark.parametrize("step", STEPS)
async def test_a_restart_back_off_is_neither_longer_nor_shorter(world: World, step: float) -> None:
    world.create()
    await world.until(world.is_ready)
    world.cri.exit("main", 1)
    await world.until(lambda: len(world.cri.done("start_container")) == 2)
    world.cri.exit("main", 1)
    await world.clock.advance(4)
    _step(world, step)
    took = await _seconds_until(world, lambda: len(world.cri.done("start_container")) == 3)
    assert 4 <= took <= 10
    world.cri.exit("main", 1)
    took = await _seconds_until(world, lambda: len(world.cri.done("start_container")) == 4)
    assert 18 <= took <= 22, "and it goes on doubling"


@pytest.mark.parametrize("step", STEPS)
async def test_a_pull_back_off(world: World, step: float) -> None:
    image = "registry.k8s.io/other:1"
    world.cri.fail["pull_image"] = [CriError("no such host")] * 2
    world.create(container("main", image=image))
    await world.clock.advance(3)
    _step(world, step)
    pulls = len(world.cri.done("pull_image"))
    took = await _seconds_until(world, lambda: len(world.cri.done("pull_image")) > pulls)
    assert 4 <= took <= 11


@pytest.mark.parametrize("step", STEPS)
async def test_active_deadline_seconds(world: World, step: float) -> None:
    world.create(activeDeadlineSeconds=100)
    await world.until(world.is_ready)
    await world.clock.advance(40)
    _step(world, step)
    await world.clock.advance(40)
    assert world.phase() == "Running"
    assert await _seconds_until(world, lambda: world.phase() == "Failed") <= 30
    assert world.status()["reason"] == "DeadlineExceeded"


@pytest.mark.parametrize("restarted", [pytest.param(False, id="same agent"), pytest.param(True, id="next agent")])
@pytest.mark.parametrize("step", STEPS)
async def test_the_grace_of_a_deletion(world: World, step: float, restarted: bool) -> None:
    world.create(terminationGracePeriodSeconds=60)
    await world.until(world.is_ready)
    world.cri.ignores_term.add("main")
    world.api.ask_deletion("u1", 60)
    await world.clock.advance(20)
    if restarted:
        await world.kill_agent()
    world.clock.step(step)
    if restarted:
        await world.start_agent()
    world.registry.wake("u1")
    took = await _seconds_until(world, lambda: "u1" not in world.api.pods)
    assert 25 <= took <= 45


@pytest.mark.parametrize("step", STEPS)
async def test_times_that_are_shown_follow_the_clock(world: World, step: float) -> None:
    _step(world, step)
    world.create()
    await world.until(world.is_ready)
    await settle()
    day = str(world.status()["startTime"])[:10]
    assert day == {3600: "2026-01-01", -3600: "2025-12-31", 172800: "2026-01-03", -172800: "2025-12-30"}[int(step)]
