"""Volumes that may grow, where one namespace has thousands of them or a driver that does not answer for its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agent.volumes.model.csi import EXPAND, CsiVolume, DriverFacts
from agent.volumes.work.csi_grower import CsiGrower
from agent.volumes.work.expansion import Expansion
from agent.volumes.work.growing import GrowingVolume
from agent.volumes.work.volume_expander import VolumeExpander
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.cpu_time import least
from tests.fakes.clock import FakeClock
from tests.fakes.csi import FakeCsiApi, FakeCsiDisk, FakeDriver, NoEvents
from tests.waiting import until


class Claims(FakeCsiApi):
    """Each asks for more than its volume has."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []

    async def claim(self, namespace: str, name: str) -> Json | None:
        self.read.append(name)
        return {"spec": {"resources": {"requests": {"storage": "2Gi"}}}, "status": {"capacity": {"storage": "1Gi"}}}

    async def volume(self, name: str) -> Json | None:
        return {"spec": {"capacity": {"storage": "2Gi"}}}

    async def patch_claim(self, namespace: str, name: str, patch: Json) -> None: ...


class Source:
    """`work()` is done whenever somebody asks for the volumes."""

    def __init__(self, volumes: list[GrowingVolume], work: Callable[[], object] = lambda: None) -> None:
        self.volumes, self.work, self.asked = volumes, work, 0
        self.new_mount = asyncio.Event()

    def growing(self) -> list[GrowingVolume]:
        self.asked += 1
        self.work()
        return self.volumes


class Driver(FakeDriver):
    """Never answers for volumes of evil."""

    async def expand(self, request: Json) -> int:
        size = await super().expand(request)
        if request["volume_id"].startswith("evil"):
            await asyncio.Event().wait()
        return size


async def test_a_namespace_whose_volumes_hang_keeps_no_other_from_growing() -> None:
    """Volumes of one driver grew one after another: two minutes for each that does not answer."""
    api, clock = Claims(), FakeClock()
    facts = DriverFacts("drv", "/s", "n", capabilities=frozenset({EXPAND}))
    driver = Driver(FakeCsiDisk(), facts)

    class Drivers:
        def get(self, name: str) -> tuple[Driver, DriverFacts]:
            return driver, facts

    expansion = Expansion(api, NoEvents(), clock)
    grower = CsiGrower(Drivers(), api, expansion)  # type: ignore[arg-type]
    names = [("evil", "evil0"), ("evil", "evil1"), ("other", "other0")]
    volumes = [
        grower.growing(
            pod(container(), meta={"uid": name, "namespace": namespace}),
            CsiVolume("v", name, "drv", name, claim=name),
            "/t",
            "",
        )
        for namespace, name in names
    ]
    task = asyncio.create_task(VolumeExpander((Source(volumes),), expansion, NoEvents(), clock).run())
    try:
        await until(lambda: driver.calls.count("expand") == 2, 15)
        assert sorted(set(api.read)) == ["evil0", "other0"]
    finally:
        await cancel_and_wait(task)


def _busy() -> None:
    least(lambda: sum(range(1_000_000)), tries=1)


async def test_mounts_of_thousands_are_looked_at_together() -> None:
    """All volumes of the node were gone through after each mount: 0.03 s of the event loop for each of 5,000."""
    source = Source([], _busy)
    expander = VolumeExpander((source,), Expansion(Claims(), NoEvents(), FakeClock()), NoEvents(), FakeClock())
    task = asyncio.create_task(expander.run())
    try:
        for _ in range(100):
            source.new_mount.set()
            await asyncio.sleep(0.001)
        assert 1 <= source.asked <= 10
    finally:
        await cancel_and_wait(task)


async def test_thousands_of_claims_are_read_at_a_pace() -> None:
    """Without one, the claims of somebody with thousands were read as fast as the API server answers, all the time."""
    api, clock = Claims(), FakeClock()

    async def grow(size: int) -> bool:
        return True

    made: list[GrowingVolume] = [_volume(number, grow) for number in range(300)]
    source = Source(made)
    task = asyncio.create_task(VolumeExpander((source,), Expansion(api, NoEvents(), clock), NoEvents(), clock).run())
    try:
        source.new_mount.set()
        await until(lambda: len(api.read) >= 300, 5)  # those that are new come at once

        def rests() -> bool:
            source.new_mount.set()
            return clock.sleeping == 1

        await until(rests, 5)
        api.read.clear()
        await clock.advance(1)
        await until(lambda: clock.sleeping == 1, 5)
        assert 40 <= len(api.read) <= 50
    finally:
        await cancel_and_wait(task)


def _volume(number: int, grow: Callable[[int], Awaitable[bool]]) -> GrowingVolume:
    owner = pod(container(), meta={"uid": f"u{number}"})
    return GrowingVolume(owner, f"pv{number}", f"claim{number}", read_only=False, group="one", grow=grow)
