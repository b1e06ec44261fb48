"""An image that came with one pod's secret is asked for anew by a pod that has none."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.common.model.errors import CriError
from agent.common.model.pods import ImageFacts
from agent.images.model.pulls import PullCredential, SecretSource
from agent.images.plan import pull_records as plan
from nodelib.errors import Temporary
from tests.builders.pods import container
from tests.fakes.pod_world import World

IMAGE = "reg.io/team/app:1"
MINE = PullCredential({"username": "me"}, SecretSource("shop", "pull", "uid-1", "hash-1"))


@pytest.fixture
async def world() -> AsyncIterator[World]:
    found = World()
    found.cri.registry[IMAGE] = ImageFacts("sha256:app", (IMAGE,))
    await found.start_agent()
    yield found
    await found.kill_agent()


def _pulls(world: World) -> int:
    return sum(method == "pull_image" for method, _ in world.cri.calls)


async def _run(world: World, uid: str, *, mine: bool, policy: str = "IfNotPresent") -> None:
    if mine:
        world.pull_secrets.credentials[uid] = MINE
    world.create(container("main", image=IMAGE, imagePullPolicy=policy), name=uid, uid=uid)
    await world.until(lambda: world.phase(uid) == "Running", seconds=30)


async def test_the_same_secret_serves_again_and_no_secret_asks_the_registry(world: World) -> None:
    await _run(world, "a", mine=True)
    await _run(world, "b", mine=True)
    assert _pulls(world) == 1
    await _run(world, "c", mine=False)
    assert _pulls(world) == 2, "the registry gave it to everybody this time"
    await _run(world, "d", mine=False)
    assert _pulls(world) == 2


async def test_a_record_outlives_the_agent(world: World) -> None:
    await _run(world, "a", mine=True)
    assert list(world.pulled.files) == [plan.file_name("sha256:app")] and world.pulling.files == {}
    await world.kill_agent()
    await world.start_agent()
    await _run(world, "b", mine=True)
    assert _pulls(world) == 1
    await _run(world, "c", mine=False)
    assert _pulls(world) == 2


async def test_policy_never_is_refused_an_image_that_is_not_everybodys(world: World) -> None:
    await _run(world, "a", mine=True)
    world.create(container("main", image=IMAGE, imagePullPolicy="Never"), name="c", uid="c")
    await world.until(lambda: "ErrImageNeverPull" in world.events.reasons())
    assert _pulls(world) == 1


async def test_what_was_there_before_is_everybodys(world: World) -> None:
    world.cri.images["old:1"] = ImageFacts("sha256:old", ("old:1",))
    world.create(container("main", image="old:1"), name="a", uid="a")
    await world.until(lambda: world.phase("a") == "Running")
    assert _pulls(world) == 0


async def test_a_pull_that_the_agent_died_in_is_nobodys(world: World) -> None:
    await world.kill_agent()
    world.pulling.files[plan.file_name(IMAGE)] = plan.encode_intent(IMAGE)
    world.cri.images[IMAGE] = ImageFacts("sha256:app", (IMAGE,))
    await world.start_agent()
    assert world.pulling.files == {}
    await _run(world, "c", mine=False)
    assert _pulls(world) == 1


async def test_a_pull_that_cannot_be_noted_is_not_begun(world: World) -> None:
    world.pulling.fail = [Temporary("disk full")]
    await _run(world, "a", mine=True)
    assert any("disk full" in message for _, reason, message in world.events.emitted if reason == "Failed")


async def test_a_pull_whose_outcome_cannot_be_seen_leaves_no_intent(world: World) -> None:
    world.cri.fail["image_status"] = [CriError("busy", code="UNKNOWN")]
    world.pull_secrets.credentials["a"] = MINE
    world.create(container("main", image=IMAGE, imagePullPolicy="Always"), name="a", uid="a")
    await world.until(lambda: world.phase("a") == "Running", seconds=60)
    assert world.pulling.files == {}


async def test_a_removed_image_is_forgotten(world: World) -> None:
    await _run(world, "a", mine=True)
    await world.clock.advance(5)
    await world.records.prune([], world.clock.now())
    assert world.pulled.files == {}
