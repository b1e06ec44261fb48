"""What is counted when pods are admitted, refused, preempted and found: upstream's labels, and no others."""

from __future__ import annotations

import pytest

from agent.admission.plan.labels import config_mode, rejection
from agent.common.metrics import exposition
from nodelib.json_values import Json
from tests.builders.metrics import series
from tests.builders.pods import container, pod
from tests.fakes.pod_world import World

CPU: Json = {"requests": {"cpu": "100m"}}
STARTS = "kubelet_pod_worker_start_duration_seconds_count"
REJECTIONS, ADMITTED = "kubelet_admission_rejections_total", "kubelet_pod_level_resources_admission_total"


async def test_pods_are_counted_as_they_are_admitted_or_refused(world: World) -> None:
    world.create(container(resources=CPU))
    world.create(container(resources={"requests": {"cpu": "3"}}), uid="u2", name="large")
    world.create(container(), uid="u3", name="elsewhere", nodeName="other")
    await world.until(lambda: world.is_ready() and world.phase("u2") == world.phase("u3") == "Failed")
    assert series(world.metrics, REJECTIONS) == {("OutOfcpu",): 1, ("Other",): 1}
    assert series(world.metrics, ADMITTED) == {("container_level", "burstable"): 1}
    assert series(world.metrics, STARTS) == {(): 3}


async def test_a_pod_whose_volumes_are_too_many_is_counted_when_it_is_given_up(world: World) -> None:
    world.volumes.missing, world.volumes.full = "attachment limit exceeded", True
    world.create()
    await world.until(lambda: world.phase() == "Failed", seconds=300, step=5)
    assert series(world.metrics, REJECTIONS) == {("VolumeAttachmentLimitExceeded",): 1}


async def test_pods_that_make_room_are_counted_by_what_was_lacking(world: World) -> None:
    world.create(container(resources={"requests": {"cpu": "1500m"}}))
    await world.until(world.is_ready)
    critical = container(resources={"requests": {"cpu": "1"}})
    world.create(critical, uid="u2", name="critical", priority=2_000_001_000)
    await world.until(lambda: world.is_ready("u2"))
    text = exposition(world.metrics.registry).decode()
    assert 'kubelet_preemptions{preemption_signal="cpu"} 1.0\n' in text
    assert series(world.metrics, REJECTIONS) == {}


async def test_pods_that_no_source_wants_are_counted(world: World) -> None:
    world.create()
    await world.until(world.is_ready)
    await world.kill_agent()
    world.api.pods.clear()
    await world.start_agent()
    await world.until(lambda: not world.cri.dump())
    assert series(world.metrics, "kubelet_orphaned_runtime_pods_total") == {(): 1}
    assert series(world.metrics, STARTS) == {(): 1}, "it is ended, not started"


async def test_a_worker_that_failed_starts_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.pods.work.pod_worker.plan_pod", lambda *_: 1 / 0)
    world.create()
    await world.clock.advance(5)
    assert series(world.metrics, STARTS) == {(): 1}


@pytest.mark.parametrize(("seconds", "cut"), [(5, 0), (600, 1)], ids=["in time", "longer than the grace"])
async def test_a_sleep_that_the_grace_ends_is_counted(world: World, seconds: int, cut: int) -> None:
    hook = {"preStop": {"sleep": {"seconds": seconds}}}
    world.create(container(lifecycle=hook), terminationGracePeriodSeconds=30)
    await world.until(world.is_ready)
    world.api.ask_deletion("u1", 30)
    await world.until(world.is_gone)
    assert series(world.metrics, "kubelet_sleep_action_terminated_early_total") == {(): cut}


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("OutOfmemory", "OutOfmemory"),
        ("OutOfacme.com/gpu-8f3a", "OutOfExtendedResources"),
        ("SysctlForbidden", "SysctlForbidden"),
        ("NodeAffinity", "Other"),
        ("SMTAlignmentError", "Other"),
    ],
)
def test_reasons_that_users_can_make_up_have_one_label(reason: str, label: str) -> None:
    assert rejection(reason) == label


@pytest.mark.parametrize(
    ("inside", "whole", "mode"),
    [
        ({}, {}, ""),
        (CPU, {}, "container_level"),
        ({}, CPU, "pod_level"),
        (CPU, CPU, "pod_and_container_level"),
        ({}, {"requests": {}}, ""),
    ],
)
def test_where_a_pod_names_its_resources(inside: Json, whole: Json, mode: str) -> None:
    assert config_mode(pod(container(resources=inside), resources=whole)) == mode
