"""How many volumes a node can have: asked again after each period, and when an attachment fails for want of room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.common.model.errors import AttachLimitExceeded
from agent.common.model.refusal import ATTACH_LIMIT
from agent.common.model.states import Failure
from agent.plugins.model import PluginInfo
from agent.pods.plan.failures import rejection_of
from agent.volumes.plan import csi as plan
from agent.volumes.plan.csi_node import update_period
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import settle
from tests.unit.agent.volumes.test_csi_volumes import INFO, VOLUME, A, World

_FULL = {"status": {"attached": False, "attachError": {"message": "no room", "errorCode": 8}}}


class _World(World):
    """A driver that is asked again every 20 seconds; `drivers` and `limits` of the running agent."""

    async def start(self) -> None:
        self.say(20)
        await self.restart()
        self.task = asyncio.create_task(self.limits.run())
        await settle()

    def say(self, period: object, **spec: Json) -> None:
        self.api.drivers["drv"] = {"spec": {"nodeAllocatableUpdatePeriodSeconds": period, **spec}}
        self.api.drivers_changed.fire()

    @property
    def count(self) -> int | None:
        node = self.api.the_csi_node or {}
        (driver,) = node["spec"]["drivers"]
        found: int | None = driver.get("allocatable", {}).get("count")
        return found

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.clock.advance(1)
            await settle()


@pytest.fixture
async def world() -> AsyncIterator[_World]:
    made = _World()
    made.driver.max_volumes = 5
    await made.start()
    yield made
    await cancel_and_wait(made.task)


async def test_the_count_follows_the_driver(world: _World) -> None:
    assert world.count == 5
    world.driver.max_volumes = 3
    await world.pass_time(19)
    assert world.count == 5 and world.driver.calls == []
    await world.pass_time(2)
    assert world.count == 3 and world.driver.calls == ["facts"]
    world.driver.max_volumes = 0  # it has no limit any more
    await world.pass_time(20)
    assert world.count is None and world.driver.calls == ["facts", "facts"]


async def test_a_driver_without_a_period_is_not_asked(world: _World) -> None:
    world.say(None)
    await settle()
    await world.pass_time(100)
    assert world.driver.calls == []
    world.say(60)
    await settle()
    await world.pass_time(59)
    assert world.driver.calls == []
    await world.pass_time(2)
    assert world.driver.calls == ["facts"]


async def test_a_driver_that_fails_is_asked_after_the_next_period(world: _World) -> None:
    world.driver.fail["facts"] = "UNAVAILABLE"
    world.driver.max_volumes = 3
    await world.pass_time(21)
    assert world.count == 5 and world.driver.calls == ["facts"]
    world.driver.fail.clear()
    await world.pass_time(20)
    assert world.count == 3


async def test_a_driver_that_has_left_is_not_asked(world: _World) -> None:
    await world.drivers.deregister(INFO)
    await world.pass_time(60)
    assert world.driver.calls == []
    await world.drivers.register(PluginInfo("CSIPlugin", "drv", "/p/drv.sock", ("1.0.0",)))
    world.driver.calls.clear()
    await settle()
    await world.pass_time(21)
    assert world.driver.calls == ["facts"]


async def test_a_full_node_tells_at_once_and_not_too_often(world: _World) -> None:
    world.api.attachments[plan.attachment_name(VOLUME, "n")] = _FULL
    world.driver.max_volumes = 1
    with pytest.raises(AttachLimitExceeded, match="no room"):
        await world.mount(A)
    assert world.count == 1 and world.driver.calls == ["facts"]
    with pytest.raises(AttachLimitExceeded):
        await world.mount(A)
    assert world.driver.calls == ["facts"]


@pytest.mark.parametrize(
    ("status", "period"),
    [
        pytest.param({"attachError": {"message": "no room", "errorCode": 8}}, None, id="the driver has no period"),
        pytest.param({"attachError": {"message": "no room", "errorCode": 13}}, 20, id="another error"),
        pytest.param({"attachError": {"message": "no room"}}, 20, id="an older attacher"),
    ],
)
async def test_other_failures_are_no_limit(world: _World, status: Json, period: int | None) -> None:
    world.say(period)
    world.api.attachments[plan.attachment_name(VOLUME, "n")] = {"status": status}
    with pytest.raises(Temporary, match="no room") as error:
        await world.mount(A)
    assert not isinstance(error.value, AttachLimitExceeded) and world.driver.calls == []


@pytest.mark.parametrize(
    ("given", "period"),
    [(None, None), (30, 30.0), (1, 10.0), (0, None), (-5, None), ("30", None), (True, None), (10**30, 1e30)],
)
def test_a_period_is_a_number_of_seconds(given: object, period: float | None) -> None:
    assert update_period({"spec": {"nodeAllocatableUpdatePeriodSeconds": given}}) == period


def test_the_pod_is_rejected_once_the_node_stays_full() -> None:
    before = Failure(ATTACH_LIMIT, "no room", retry_at=100.0, times=3, since=50.0)
    assert rejection_of(ATTACH_LIMIT, "no room", 50.0, None) is None
    assert rejection_of(ATTACH_LIMIT, "no room", 172.0, before) is None
    found = rejection_of(ATTACH_LIMIT, "no room", 174.0, before)
    assert found is not None
    assert (found.reason, found.message) == ("VolumeAttachmentLimitExceeded", "Pod was rejected: no room")
    other = Failure("FailedMount", "no attacher", retry_at=100.0, times=3, since=0.0)
    assert rejection_of(ATTACH_LIMIT, "no room", 174.0, other) is None
    assert rejection_of("FailedMount", "no attacher", 1000.0, other) is None
