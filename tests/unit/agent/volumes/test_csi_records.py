"""How often the records of all CSI volumes are read, where pods have thousands of them."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.plugins.model import PluginInfo
from agent.volumes.model.csi import STAGE, CsiVolume, DriverFacts, Published, Staged
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_records import CsiRecords
from agent.volumes.work.csi_volumes import CsiVolumes, CsiVolumesDeps
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock
from tests.fakes.csi import FakeCsiApi, FakeCsiDisk, FakeDriver, no_growth
from tests.fakes.shared_threads import SharedThreads
from tests.waiting import until

VOLUME = CsiVolume("v", "pv", "drv", "h", fs_type="ext4", access_modes=("ReadWriteOnce",))
PODS, EACH = 20, 30


class Disk(FakeCsiDisk):
    """Counts how often all records are read, and how many do so at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.at_once, self.most = 0, 0, 0
        self._lock = threading.Lock()

    def all_published(self) -> dict[str, list[Published]]:
        with self._lock:
            self.looks, self.at_once = self.looks + 1, self.at_once + 1
            self.most = max(self.most, self.at_once)
        try:
            return super().all_published()
        finally:
            with self._lock:
                self.at_once -= 1

    def all_staged(self) -> list[Staged]:
        with self._lock:
            self.looks += 1
        return super().all_staged()


class World:
    def __init__(self) -> None:
        self.disk, self.api, self.clock = Disk(), FakeCsiApi(), FakeClock()
        self.api.drivers["drv"] = {"spec": {"attachRequired": False}}
        self.driver = FakeDriver(self.disk, DriverFacts("drv", "/p/drv.sock", "n", capabilities=frozenset({STAGE})))
        self.drivers = CsiDrivers(self.api, lambda name, endpoint: self.driver, self.clock, lambda: None)
        known = asyncio.Event()
        known.set()

        async def in_use(names: frozenset[str]) -> None: ...

        async def exceeded(name: str) -> None: ...

        deps = CsiVolumesDeps(
            self.drivers, self.api, self.disk, self.clock, in_use, known, exceeded, no_growth(self.drivers, self.api)
        )
        self.agent = CsiVolumes("/k", "n", deps)
        self.pods = [pod(container(), meta={"uid": f"u{number}"}) for number in range(PODS)]

    async def start(self) -> World:
        await self.drivers.register(PluginInfo("CSIPlugin", "drv", "/p/drv.sock", ("1.0.0",)))
        for one in self.pods:
            await self.agent.mount(one, PodPaths("/k", one.uid), self.volumes(one))
        self.driver.calls.clear()
        self.disk.looks = 0
        return self

    def volumes(self, of: Pod) -> list[CsiVolume]:
        names = [f"{of.uid}-{number}" for number in range(EACH)]
        return [replace(VOLUME, name=name, spec_name=name, handle=name) for name in names]


async def test_pods_that_end_together_look_together() -> None:
    """All records were read twice for each volume, in the few threads that the agent has: while a hundred pods of
    fifty volumes went, anything else that needs a thread waited for 16 s."""
    world = await World().start()
    await asyncio.gather(*(world.agent.release(PodPaths("/k", one.uid)) for one in world.pods))
    assert world.driver.calls.count("unstage") == PODS * EACH
    assert not world.disk.files and not world.agent.names_in_use()
    assert (world.disk.looks <= 2 * PODS, world.disk.most) == (True, 1)


async def test_the_threads_that_all_share_write_no_records() -> None:
    """Each record waits for the disk, twice for a volume: while forty pods of 25 volumes began, anything else that
    needs a thread, such as the cgroup of a pod, waited for 0.7 s in the median and 1.6 at most, each time."""
    threads = SharedThreads()
    world = await World().start()
    await asyncio.gather(*(world.agent.release(PodPaths("/k", one.uid)) for one in world.pods))
    assert not world.disk.files and threads.given == 0


async def test_volumes_that_are_used_are_looked_at_once_in_a_sweep() -> None:
    """All records were read for each volume of the node, every two minutes: without end where it has thousands."""
    world = await World().start()
    run = asyncio.create_task(world.agent.run())
    try:
        for sweeps in range(1, 4):
            await until(lambda: world.clock.sleeping == 2, 5)  # the next sweep, the next republishing
            assert world.disk.looks == 2 * sweeps
            await world.clock.advance(121)
    finally:
        await cancel_and_wait(run)
    assert "unstage" not in world.driver.calls


async def test_a_look_begins_after_it_was_asked_for() -> None:
    """Whoever asks while one is under way must see what came to the disk since it began."""
    disk, began, go = FakeCsiDisk(), threading.Event(), threading.Event()
    looks: list[int] = []

    class Slow(FakeCsiDisk):
        def all_staged(self) -> list[Staged]:
            looks.append(len(disk.files))
            began.set()
            go.wait(10)
            return disk.all_staged()

    records = CsiRecords(Slow())
    first = asyncio.create_task(records.look())
    await until(began.is_set, 5)
    disk.save("/k/plugins/kubernetes.io/csi/drv/x", {"driverName": "drv", "volumeHandle": "x"})
    later = [asyncio.create_task(records.look()) for _ in range(5)]
    await asyncio.sleep(0)
    later[0].cancel()  # one that leaves takes nobody along
    go.set()
    await first
    for one in later[1:]:
        assert [key.handle for key in (await one).staged] == ["x"]
    assert looks == [0, 1]
