"""registryPullQPS and registryBurst: a pull beyond them fails at once and is backed off."""

from __future__ import annotations

from agent.common.model.states import ImagePhase, ImageState
from agent.images.work.images import ImageManager
from nodelib.rate_limiter import TokenBucket
from tests.builders.pods import pod
from tests.fakes.clock import settle
from tests.unit.agent.images.test_pull_progress_work import World


class Limited(World):
    """One pull at once, and one more every two seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, ImageState] = {}
        self.manager = ImageManager(self.deps, 5, rate=TokenBucket(0.5, 1, self.clock.monotonic))
        self.go.set()

    def on_state(self, key: str, state: ImageState) -> None:
        self.states[key] = state


async def test_a_pull_too_many_fails_and_is_backed_off() -> None:
    world = Limited()
    first, second = pod(meta={"uid": "u1", "name": "a"}), pod(meta={"uid": "u2", "name": "b"})
    await world.pull(first)
    assert world.states["app"].phase is ImagePhase.PRESENT
    await world.pull(second, "r/web:2")
    failed = world.states["app"]
    assert failed.phase is ImagePhase.FAILED and failed.waiting is not None
    assert failed.waiting.reason == "ErrImagePull" and "pull QPS exceeded" in failed.waiting.message
    assert 'Failed to pull image "r/web:2": pull QPS exceeded' in world.said()
    await world.clock.advance(5)
    await world.pull(second, "r/web:2")
    backing_off = world.states["app"]
    assert backing_off.waiting is not None and backing_off.waiting.reason == "ImagePullBackOff"
    await world.clock.advance(10)
    await world.pull(second, "r/web:2")
    await settle()
    assert world.states["app"].phase is ImagePhase.PRESENT


async def test_an_image_that_is_there_takes_no_token() -> None:
    world = Limited()
    for number in range(3):
        await world.pull(pod(meta={"uid": f"u{number}"}))
        await settle()
        assert world.states["app"].phase is ImagePhase.PRESENT
