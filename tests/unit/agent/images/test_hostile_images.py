"""Images whose configuration is made to harm the node: what the runtime says of all images has 16 MiB at most."""

from __future__ import annotations

import asyncio

import pytest

from agent.common.model.errors import CriError
from agent.common.model.pods import ImageFacts
from agent.common.model.states import ImagePhase
from agent.images.plan.images import Wanted
from tests.builders.pods import pod
from tests.fakes.clock import settle
from tests.unit.agent.images.test_pull_rate import Limited

TOO_LARGE = "grpc: trying to send message larger than max (20971934 vs. 16777216)"


async def ensure(world: Limited) -> None:
    await world.manager.ensure(pod(), Wanted("app", "r/web:1", "IfNotPresent", "app"), 0, world.on_state)
    await settle()


@pytest.mark.parametrize("is_there", [False, True], ids=["pulled", "there already"])
@pytest.mark.parametrize("listed", [False, True], ids=["too large for an answer", "a megabyte"])
async def test_an_image_with_a_huge_user_is_removed(is_there: bool, listed: bool) -> None:
    """With it in the runtime's list there was none any more: no image of the node was collected, whatever ran out."""
    world = Limited()
    facts = ImageFacts("sha256:evil", ("r/web:1",), username="u" * (1 << 20))
    world.cri.registry["r/web:1"] = facts
    if is_there:
        world.cri.images["r/web:1"] = facts

    def status(reference: str) -> None:
        if not listed and reference in world.cri.images:
            raise CriError(TOO_LARGE, code="RESOURCE_EXHAUSTED")

    world.cri.before["image_status"] = status
    await ensure(world)
    state = world.states["app"]
    assert state.phase is ImagePhase.FAILED and state.waiting is not None
    assert "removed" in state.waiting.message and len(state.waiting.message) < 500
    assert not world.cri.images


async def test_it_is_removed_also_when_its_pod_goes_meanwhile() -> None:
    world = Limited()
    world.cri.registry["r/web:1"] = ImageFacts("sha256:evil", ("r/web:1",), username="u" * (1 << 20))
    is_gone = False

    async def gone(reference: str) -> None:
        nonlocal is_gone
        if world.cri.images and not is_gone:
            is_gone = True
            world.manager.remove("uid-1")
            await asyncio.sleep(0)

    world.cri.before["image_status"] = gone
    one = pod(meta={"uid": "uid-1"})
    await world.manager.ensure(one, Wanted("app", "r/web:1", "IfNotPresent", "app"), 0, world.on_state)
    await settle()
    assert is_gone and not world.cri.images
    assert not world.manager._looks


async def test_any_other_error_removes_nothing() -> None:
    world = Limited()
    world.cri.images["r/web:1"] = ImageFacts("sha256:good", ("r/web:1",), username="nonroot")

    def status(reference: str) -> None:
        raise CriError("no such file", code="UNKNOWN")

    world.cri.before["image_status"] = status
    await ensure(world)
    assert world.states["app"].phase is ImagePhase.FAILED and world.cri.images
