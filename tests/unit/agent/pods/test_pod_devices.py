"""Pods that need devices and drivers, through the whole pipeline."""

from __future__ import annotations

from tests.builders.metrics import series
from tests.builders.pods import container
from tests.fakes.clock import settle
from tests.fakes.pod_world import World

GPU = "acme.com/gpu"


async def offer(world: World, *ids: str) -> None:
    """A plugin registers and lists its devices."""
    await world.deps.resources.devices.connect("v1beta1", GPU, "/d/gpu.sock")
    world.plugins[-1].list_devices(*ids)
    await settle()


def asks(world: World, uid: str) -> str:
    return world.create(container("main", resources={"limits": {GPU: "1"}}), name=uid, uid=uid)


async def test_a_pod_without_its_device_is_rejected_and_the_others_run(world: World) -> None:
    await offer(world, "1")
    asks(world, "u1")
    await world.until(world.is_ready)
    shown = world.container_status()["allocatedResourcesStatus"]
    assert shown == [{"name": GPU, "resources": [{"resourceID": "1", "health": "Healthy"}]}]
    asks(world, "u2")
    await world.until(lambda: world.phase("u2") == "Failed")
    status = world.status("u2")
    assert status["reason"] == "UnexpectedAdmissionError"
    text = "requested number of devices unavailable for acme.com/gpu. Requested: 1, Available: 0"
    assert status["message"] == f"Pod was rejected: Allocate failed due to {text}, which is unexpected"
    assert "UnexpectedAdmissionError" in world.events.reasons() and world.is_ready()
    assert series(world.metrics, "kubelet_admission_rejections_total") == {("UnexpectedAdmissionError",): 1}


async def test_a_running_pod_keeps_its_device_over_a_restart_without_its_plugin(world: World) -> None:
    await offer(world, "1")
    asks(world, "u1")
    await world.until(world.is_ready)
    starts = len(world.cri.done("start_container"))
    await world.kill_agent()
    await world.start_agent()
    await settle(300)
    assert world.phase() == "Running" and len(world.cri.done("start_container")) == starts
    assert [one.ids for one in world.deps.resources.devices.allocations.values()] == [{"1"}]


async def test_retry_blocked_tries_failed_steps_at_once(world: World) -> None:
    world.volumes.missing = "driver name drv not found in the list of registered CSI drivers"
    world.create()
    for _ in range(20):
        await world.clock.advance(5)
    world.volumes.missing = ""
    world.registry.retry_blocked()
    await settle(300)
    assert world.is_ready()


async def test_a_full_node_rejects_the_pod_however_many_drivers_come_meanwhile(world: World) -> None:
    """Each driver that registers has failed steps tried again; that is no new beginning of what they wait for."""
    world.volumes.missing, world.volumes.full = "attachment limit exceeded", True
    world.create()
    for _ in range(26):
        await world.clock.advance(5)
        world.registry.retry_blocked()
        await settle(20)
    await world.until(lambda: world.phase() == "Failed")
    assert world.status()["reason"] == "VolumeAttachmentLimitExceeded"
