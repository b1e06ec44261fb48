"""CSI volumes on a machine with SELinux: mount flags, pods that disagree, restarts of the agent, metrics."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from agent.common.model.pod_settings import PodPaths
from agent.common.model.pods import Pod
from agent.common.model.selinux import Selinux
from agent.plugins.model import PluginInfo
from agent.volumes.edge.selinux_metrics import SelinuxCounts
from agent.volumes.model.csi import EXPAND, STAGE, CsiVolume, DriverFacts
from agent.volumes.model.volumes import MountedVolume
from agent.volumes.plan import csi as csi_plan
from agent.volumes.work.csi_contexts import CsiContexts
from agent.volumes.work.csi_drivers import CsiDrivers
from agent.volumes.work.csi_volumes import CsiVolumes, CsiVolumesDeps
from nodelib.errors import Temporary
from tests.builders.metrics import metrics, series
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock
from tests.fakes.csi import FakeCsiApi, FakeCsiDisk, FakeDriver, no_growth

FACTS = DriverFacts("drv", "/p/drv.sock", "node-7", capabilities=frozenset({STAGE, EXPAND}))
VOLUME = CsiVolume("v", "pv", "drv", "h", access_modes=("ReadWriteMany",), mount_options=("noatime",))
MACHINE = Selinux("system_u:object_r:container_file_t:s0")
DRIVER = ("kubernetes.io/csi/drv", "RWX")
ONE, TWO = "system_u:object_r:container_file_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c3"


def subject(uid: str, level: str = "s0:c1,c2", **context: Any) -> Pod:
    one = container(volumeMounts=[{"name": "v", "mountPath": "/v"}])
    return pod(one, meta={"uid": uid}, securityContext={"seLinuxOptions": {"level": level}, **context})


class World:
    """`restart()` begins another run of the agent on the same disk; counts are of the newest one."""

    def __init__(self) -> None:
        self.disk, self.api, self.clock = FakeCsiDisk(), FakeCsiApi(), FakeClock()
        self.api.drivers["drv"] = {"spec": {"attachRequired": False, "seLinuxMount": True}}
        self.driver = FakeDriver(self.disk, FACTS)

    async def restart(self, machine: Selinux | None = MACHINE, *, every_mode: bool = True) -> None:
        self.metrics = metrics()
        drivers = CsiDrivers(self.api, lambda name, endpoint: self.driver, self.clock, lambda: None)
        await drivers.register(PluginInfo("CSIPlugin", "drv", "/p/drv.sock", ("1.0.0",)))
        known = asyncio.Event()
        known.set()

        async def nothing(_: object) -> None:
            return None

        contexts = CsiContexts(machine, every_mode=every_mode, counts=SelinuxCounts(self.metrics.registry))
        growth = no_growth(drivers, self.api)
        deps = CsiVolumesDeps(drivers, self.api, self.disk, self.clock, nothing, known, nothing, growth, contexts)
        self.agent = CsiVolumes("/k", "n", deps)
        self.driver.calls.clear()
        await self.agent.load()

    async def mount(self, who: Pod, volume: CsiVolume = VOLUME) -> MountedVolume:
        return (await self.agent.mount(who, PodPaths("/k", who.uid), [volume]))["v"]

    async def release(self, who: Pod) -> None:
        await self.agent.release(PodPaths("/k", who.uid))

    def counted(self, name: str) -> dict[tuple[str, ...], float]:
        return series(self.metrics, f"volume_manager_selinux_{name}_total")


@pytest.fixture
async def world() -> World:
    made = World()
    await made.restart()
    return made


A, SAME, OTHER = subject("a"), subject("same"), subject("other", "s0:c3")
RECURSIVE = subject("recursive", seLinuxChangePolicy="Recursive")


async def test_the_driver_is_told_the_context_and_the_runtime_does_not_relabel(world: World) -> None:
    made = await world.mount(A)
    assert world.driver.flags == {call: ["noatime", f'context="{ONE}"'] for call in ("stage", "publish")}
    assert not made.relabels
    await world.mount(SAME)
    assert world.driver.calls == ["stage", "publish", "publish"]
    assert {data["seLinuxMountContext"] for data in world.disk.files.values()} == {ONE}
    assert world.counted("volumes_admitted") == {DRIVER: 1}


async def test_growing_has_no_context() -> None:
    request = csi_plan.expand_request(replace(VOLUME, context=ONE), FACTS, target="t", staging="s", size=1, secrets={})
    assert request["volume_capability"]["mount"]["mount_flags"] == ["noatime"]


@pytest.mark.parametrize(
    ("machine", "every", "who", "relabels"),
    [
        pytest.param(None, True, A, False, id="no SELinux"),
        pytest.param(MACHINE, False, A, True, id="gate off"),
        pytest.param(MACHINE, True, RECURSIVE, True, id="the pod does not want it"),
    ],
)
async def test_otherwise_the_runtime_relabels(
    world: World, machine: Selinux | None, every: bool, who: Pod, relabels: bool
) -> None:
    await world.restart(machine, every_mode=every)
    made = await world.mount(who)
    assert world.driver.flags["stage"] == ["noatime"] and made.relabels is relabels
    assert not any("seLinuxMountContext" in data for data in world.disk.files.values())


async def test_what_has_no_labels_or_is_read_only_is_not_relabelled(world: World) -> None:
    assert not (await world.mount(RECURSIVE, replace(VOLUME, read_only=True))).relabels
    world.disk.labels = False
    assert not (await world.mount(subject("more", seLinuxChangePolicy="Recursive"))).relabels


@pytest.mark.parametrize("second", [OTHER, RECURSIVE], ids=["another level", "another policy"])
async def test_a_pod_that_disagrees_waits_until_the_other_is_gone(world: World, second: Pod) -> None:
    await world.mount(A)
    ours = TWO if second is OTHER else ""
    with pytest.raises(Temporary, match=f'conflicting SELinux labels of volume pv: "{ONE}" and "{ours}"'):
        await world.mount(second)
    assert world.counted("volume_context_mismatch_errors") == {DRIVER: 1}
    await world.release(A)
    await world.mount(second)
    assert world.driver.calls == ["stage", "publish", "unpublish", "unstage", "stage", "publish"]
    assert world.driver.flags["publish"][1:] == ([f'context="{TWO}"'] if second is OTHER else [])


async def test_while_the_other_is_being_unmounted_the_error_says_so(world: World) -> None:
    await world.mount(A)
    world.driver.fail["unpublish"] = "INTERNAL"
    with pytest.raises(Exception, match="as the test asked for"):
        await world.release(A)
    with pytest.raises(Temporary, match=r'waiting for unmount of volume "kubernetes.io/csi/drv\^h", because'):
        await world.mount(OTHER)


async def test_after_a_restart_the_disk_says_who_has_which_context(world: World) -> None:
    await world.mount(A)
    await world.restart()
    with pytest.raises(Temporary, match="waiting for unmount"):
        await world.mount(OTHER)
    await world.mount(A)
    with pytest.raises(Temporary, match="conflicting SELinux labels"):
        await world.mount(OTHER)
    await world.mount(SAME)
    assert world.driver.calls == ["stage", "publish"]
    await world.release(SAME)
    await world.release(A)
    await world.mount(OTHER)
    assert world.driver.flags["stage"] == ["noatime", f'context="{TWO}"']


async def test_what_is_mounted_for_a_pod_stays_as_it_is(world: World) -> None:
    await world.restart(every_mode=False)
    await world.mount(A)
    await world.restart(every_mode=True)
    assert (await world.mount(A)).relabels and world.driver.calls == []
    with pytest.raises(Temporary, match="waiting for unmount"):
        await world.mount(SAME)


async def test_a_volume_that_was_left_staged_with_another_context_is_staged_anew(world: World) -> None:
    await world.mount(A)
    world.driver.fail["unstage"] = "INTERNAL"
    await world.release(A)
    world.driver.fail.clear()
    await world.restart()
    await world.mount(OTHER)
    assert world.driver.calls == ["unstage", "stage", "publish"]


async def test_where_the_mode_is_not_mounted_so_a_conflict_is_a_warning(world: World) -> None:
    await world.restart(every_mode=False)
    await world.mount(A)
    await world.mount(OTHER)
    assert world.counted("volume_context_mismatch_warnings") == {DRIVER: 1}
    assert not world.counted("volume_context_mismatch_errors")


@pytest.mark.parametrize(
    ("own", "error", "count"),
    [
        ({"level": "s0:c9"}, "multiple SELinux labels found", "pod_context_mismatch"),
        ({"level": 's0",exec'}, "failed to construct SELinux label", "container"),
    ],
)
async def test_a_pod_whose_options_cannot_be_granted(world: World, own: dict[str, str], error: str, count: str) -> None:
    mounts: Any = [{"name": "v", "mountPath": "/v"}]
    two = container("two", volumeMounts=mounts, securityContext={"seLinuxOptions": own})
    who = pod(
        container(volumeMounts=mounts), two, meta={"uid": "u"}, securityContext={"seLinuxOptions": {"level": "s0"}}
    )
    with pytest.raises(Temporary, match=error):
        await world.mount(who)
    assert world.counted(f"{count}_errors") == {("RWX",): 1}
    await world.restart(every_mode=False)
    await world.mount(who)
    assert world.counted(f"{count}_warnings") == {("RWX",): 1}
