"""Records of pulls: an image pulled with one pod's secret is pulled again for a pod that has none."""

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


async def test_the_same_secret_is_known_and_without_one_the_image_is_pulled(world: World) -> None:
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


async def test_a_record_of_another_name_is_none(world: World) -> None:
    """Upstream's suite puts one aside in that way: then the image counts as preloaded, which is for everybody."""
    await _run(world, "a", mine=True)
    await world.kill_agent()
    world.pulled.files = {f"temp_{name}": text for name, text in world.pulled.files.items()}
    await world.start_agent()
    await _run(world, "b", mine=False)
    assert _pulls(world) == 1


async def test_policy_never_without_access_to_the_image_is_refused(world: World) -> None:
    await _run(world, "a", mine=True)
    world.create(container("main", image=IMAGE, imagePullPolicy="Never"), name="c", uid="c")
    await world.until(lambda: "ErrImageNeverPull" in world.events.reasons())
    message = next(message for _, reason, message in world.events.emitted if reason == "ErrImageNeverPull")
    assert "it is on the node, but was not pulled with this pod's credentials" in message
    assert _pulls(world) == 1


async def test_a_preloaded_image_is_for_everybody(world: World) -> None:
    world.cri.images["old:1"] = ImageFacts("sha256:old", ("old:1",))
    world.create(container("main", image="old:1"), name="a", uid="a")
    await world.until(lambda: world.phase("a") == "Running")
    assert _pulls(world) == 0


async def test_a_pull_that_outlives_the_agent_is_for_no_pod(world: World) -> None:
    await world.kill_agent()
    world.pulling.files[plan.file_name(IMAGE)] = plan.encode_intent(IMAGE)
    world.cri.images[IMAGE] = ImageFacts("sha256:app", (IMAGE,))
    await world.start_agent()
    assert world.pulling.files == {}
    await _run(world, "c", mine=False)
    assert _pulls(world) == 1


async def test_a_pull_that_cannot_be_recorded_does_not_begin(world: World) -> None:
    world.pulling.fail = [Temporary("disk full")]
    await _run(world, "a", mine=True)
    assert any("disk full" in message for _, reason, message in world.events.emitted if reason == "Failed")


async def test_a_pull_whose_outcome_cannot_be_seen_leaves_no_intent(world: World) -> None:
    world.cri.fail["image_status"] = [CriError("busy", code="UNKNOWN")]
    world.pull_secrets.credentials["a"] = MINE
    world.create(container("main", image=IMAGE, imagePullPolicy="Always"), name="a", uid="a")
    await world.until(lambda: world.phase("a") == "Running", seconds=60)
    assert world.pulling.files == {}


async def test_the_record_of_a_removed_image_is_removed(world: World) -> None:
    await _run(world, "a", mine=True)
    await world.clock.advance(5)
    await world.records.prune([], world.clock.now())
    assert world.pulled.files == {}
