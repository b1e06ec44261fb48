"""Resizes through the whole pod pipeline: a real table and workers over fakes, in virtual time."""

from __future__ import annotations

import asyncio

from agent.common.model.errors import CriError
from agent.common.model.pods import Pod
from agent.resources.plan import checkpoint
from agent.resources.work.allocations import Allocations
from nodelib.errors import Temporary
from nodelib.json_values import Json
from tests.builders.pods import container, pod
from tests.fakes.clock import FakeClock, settle
from tests.fakes.pod_world import FakeCheckpoints, World
from tests.unit.agent.pods.test_resize_plan import LARGE, SMALL, policies, res

MI = 1 << 20


def ask(world: World, to: Json, uid: str = "u1", **whole: Json) -> None:
    """What the resize subresource does: new resources, a new generation."""

    def change(raw: Json) -> None:
        for one in raw["spec"]["containers"]:
            one["resources"] = to
        raw["spec"].update(whole)
        raw["metadata"]["generation"] += 1

    world.api.update(uid, change)


def condition(world: World, kind: str, uid: str = "u1") -> Json | None:
    return next((one for one in world.status(uid).get("conditions") or [] if one["type"] == kind), None)


def done(world: World, uid: str = "u1") -> bool:
    """As upstream's tests wait for it."""
    generation = world.api.pods[uid]["metadata"]["generation"]
    quiet = not condition(world, "PodResizePending", uid) and not condition(world, "PodResizeInProgress", uid)
    return world.status(uid).get("observedGeneration") == generation and quiet and world.is_ready(uid)


def writes(world: World) -> list[str]:
    return [what for method, what in world.cri.calls if method in ("set_limits", "update_resources")]


async def test_a_running_container_grows_without_a_restart(world: World) -> None:
    world.create(container(resources=SMALL))
    await world.until(world.is_ready)
    assert world.container_status()["resources"] == SMALL
    world.cri.calls.clear()
    ask(world, LARGE)
    await world.until(lambda: done(world))
    assert writes(world) == [
        f"web memory={256 * MI}",
        f"main cpu_shares=102 cpu_quota=20000 memory_limit_in_bytes={256 * MI}",
        "web cpu_quota=40000",
        "web cpu_shares=204",
        f"main cpu_shares=204 cpu_quota=40000 memory_limit_in_bytes={256 * MI}",
    ]
    status = world.container_status()
    assert status["resources"] == LARGE and status["allocatedResources"] == LARGE["requests"]
    assert status["restartCount"] == 0
    assert world.status()["allocatedResources"] == LARGE["requests"]
    assert world.status()["resources"] == LARGE
    assert [reason for reason in world.events.reasons() if "Resize" in reason] == ["ResizeStarted", "ResizeCompleted"]
    assert "Pod resize started: " + (
        '{"containers":[{"name":"main","resources":{"limits":{"cpu":"400m","memory":"256Mi"},'
        '"requests":{"cpu":"200m","memory":"128Mi"}}}],"generation":2}'
    ) in [message for _, _, message in world.events.emitted]


async def test_the_condition_is_shown_during_the_resize(world: World) -> None:
    world.create(container(resources=SMALL))
    await world.until(world.is_ready)
    gate = asyncio.Event()
    world.cri.before["update_resources"] = lambda what: gate.wait()
    ask(world, LARGE)
    await world.until(lambda: condition(world, "PodResizeInProgress") is not None)
    shown = condition(world, "PodResizeInProgress")
    assert shown is not None and (shown["status"], shown["observedGeneration"]) == ("True", 2)
    assert world.container_status()["resources"]["requests"]["memory"] == "64Mi"
    assert world.container_status()["allocatedResources"] == LARGE["requests"]
    assert world.status()["observedGeneration"] == 2
    gate.set()
    await world.until(lambda: done(world))


async def test_a_resize_policy_can_restart_the_container(world: World) -> None:
    world.create(container(resources=SMALL, **policies(memory="RestartContainer")))
    await world.until(world.is_ready)
    world.cri.calls.clear()
    ask(world, LARGE)
    await world.until(lambda: done(world) and world.container_status()["restartCount"] == 1, seconds=5)
    assert not world.cri.done("update_resources")
    assert world.container_status()["resources"] == LARGE
    order = [method for method, _ in world.cri.calls if method in ("stop_container", "set_limits", "start_container")]
    assert order == ["stop_container", "set_limits", "set_limits", "set_limits", "start_container"]
    assert ("Normal", "Killing", "Container main resize requires restart") in world.events.emitted


async def test_a_pending_resize_is_done_once_there_is_room(world: World) -> None:
    big = res("1500m", "64Mi")
    world.create(container(resources=SMALL), uid="u1", name="one")
    world.create(container(resources=big), uid="u2", name="two")
    await world.until(lambda: world.is_ready("u1") and world.is_ready("u2"))
    ask(world, res("600m", "64Mi", "600m", "128Mi"))
    await world.until(lambda: condition(world, "PodResizePending") is not None)
    shown = condition(world, "PodResizePending")
    assert shown is not None
    assert (shown["reason"], shown["observedGeneration"]) == ("Deferred", 2)
    assert shown["message"] == "Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000"
    assert world.container_status()["allocatedResources"] == SMALL["requests"]
    assert world.status()["observedGeneration"] == 2
    assert world.is_ready()
    ask(world, res("1", "64Mi"), uid="u2")
    await world.until(lambda: done(world) and done(world, "u2"), seconds=30)
    assert world.container_status()["allocatedResources"]["cpu"] == "600m"
    assert [reason for reason in world.events.reasons() if reason == "ResizeDeferred"] == ["ResizeDeferred"]


async def test_a_deleted_pod_makes_room_for_a_pending_resize(world: World) -> None:
    world.create(container(resources=SMALL), uid="u1", name="one")
    world.create(container(resources=res("1500m", "64Mi")), uid="u2", name="two", terminationGracePeriodSeconds=1)
    await world.until(lambda: world.is_ready("u1") and world.is_ready("u2"))
    ask(world, res("600m", "64Mi", "600m", "128Mi"))
    await world.until(lambda: condition(world, "PodResizePending") is not None)
    world.api.ask_deletion("u2", 1)
    await world.until(lambda: done(world), seconds=30)
    assert world.container_status()["allocatedResources"]["cpu"] == "600m"


async def test_pending_resizes_are_tried_again_every_few_minutes(world: World) -> None:
    world.create(container(resources=SMALL))
    await world.until(world.is_ready)
    ask(world, res("3", "64Mi", "3", "128Mi"))
    await world.until(lambda: condition(world, "PodResizePending") is not None)
    world.node = type(world.node)(name="n1", allocatable={"cpu": "4", "memory": "4Gi", "pods": "10"})
    await world.until(lambda: done(world), seconds=200, step=10)


async def test_a_withdrawn_resize_leaves_nothing_behind(world: World) -> None:
    world.create(container(resources=SMALL))
    await world.until(world.is_ready)
    ask(world, res("3", "64Mi", "3", "128Mi"))
    await world.until(lambda: condition(world, "PodResizePending") is not None)
    world.cri.calls.clear()
    ask(world, SMALL)
    await world.until(lambda: done(world))
    assert not writes(world)


async def test_memory_is_not_reduced_below_its_use(world: World) -> None:
    world.create(container(resources=LARGE))
    await world.until(world.is_ready)
    world.cgroups.use["u1"] = 100 * MI
    world.cri.calls.clear()
    ask(world, res("200m", "16Mi", "400m", "64Mi"))
    await world.until(lambda: (condition(world, "PodResizeInProgress") or {}).get("reason") == "Error")
    shown = condition(world, "PodResizeInProgress")
    assert shown is not None
    assert f"attempting to set pod memory limit ({64 * MI}) below current usage ({100 * MI})" in shown["message"]
    assert not writes(world)
    assert world.container_status()["resources"]["limits"]["memory"] == "256Mi"
    assert world.events.reasons().count("ResizeError") == 1
    await world.clock.advance(25)
    assert world.events.reasons().count("ResizeError") == 1, "the same error is reported once"
    world.cgroups.use["u1"] = MI
    await world.until(lambda: done(world), seconds=15)
    assert world.container_status()["resources"]["limits"]["memory"] == "64Mi"


async def test_after_a_failure_half_way_only_the_rest_is_resized(world: World) -> None:
    world.create(container("a", resources=SMALL), container("b", resources=SMALL))
    await world.until(world.is_ready)
    world.cri.before["update_resources"] = lambda what: (
        world.cri.fail.update(update_resources=[CriError("no such cgroup")]) if what.startswith("b") else None
    )
    ask(world, res("100m", "64Mi", "200m", "192Mi"))
    await world.until(lambda: (condition(world, "PodResizeInProgress") or {}).get("reason") == "Error")
    shown = condition(world, "PodResizeInProgress")
    assert shown is not None and shown["message"].startswith('failed to resize container "b"')
    del world.cri.before["update_resources"]
    world.cri.fail.clear()
    world.cri.calls.clear()
    await world.until(lambda: done(world), seconds=15)
    assert [what.split()[0] for what in world.cri.done("update_resources")] == ["b"]


async def test_a_restarted_agent_goes_on_with_allocated_resizes(world: World) -> None:
    world.create(container(resources=SMALL))
    await world.until(world.is_ready)
    gate = asyncio.Event()
    world.cri.before["update_resources"] = lambda what: gate.wait()
    ask(world, LARGE)
    await world.until(lambda: bool(world.cri.done("update_resources")))
    await world.kill_agent()
    world.cri.before.clear()
    ask(world, res("3", "64Mi", "3", "128Mi"))  # does not fit, asked for while no agent ran
    world.cri.calls.clear()
    await world.start_agent()
    await world.until(lambda: world.container_status().get("resources") == LARGE)
    await world.until(lambda: not condition(world, "PodResizeInProgress"))
    pending = condition(world, "PodResizePending")
    assert pending is not None and pending["reason"] == "Deferred"
    assert world.container_status()["allocatedResources"] == LARGE["requests"]
    assert not world.cri.done("stop_container")


async def test_an_interrupted_resize_leaves_the_cgroup_as_it_is(world: World) -> None:
    """v1 refuses a cgroup less than a container in it was given: less than the kernel has is never written."""
    world.create(container(resources=SMALL))
    await world.until(world.is_ready)
    update, reached, held = world.cri.update_resources, asyncio.Event(), asyncio.Event()

    async def update_and_hold(container_id: str, linux: Json) -> None:
        await update(container_id, linux)
        if linux["cpu_quota"] == 40_000:
            reached.set()
            await held.wait()

    world.cri.update_resources = update_and_hold  # type: ignore[method-assign]
    ask(world, LARGE)
    await asyncio.wait_for(reached.wait(), 5)
    await world.kill_agent()
    world.cri.update_resources = update  # type: ignore[method-assign]
    ensure, quotas = world.cgroups.ensure_pod, [world.cgroups.have["u1"].cpu_quota]

    async def noted(pod: Pod, *, keep: bool = False) -> str:
        parent = await ensure(pod, keep=keep)
        quotas.append(world.cgroups.have["u1"].cpu_quota)
        return parent

    world.cgroups.ensure_pod = noted  # type: ignore[method-assign]
    await world.start_agent()
    await world.until(lambda: done(world))
    assert [*quotas, world.cgroups.have["u1"].cpu_quota] == [40_000, 40_000, 40_000]
    assert world.container_status()["resources"] == LARGE and world.container_status()["restartCount"] == 0
    assert not [reason for reason in world.events.reasons() if reason in ("FailedCreatePodContainer", "ResizeError")]


async def test_a_restarted_agent_does_not_report_a_resize_twice(world: World) -> None:
    world.create(container(resources=SMALL))
    await world.until(world.is_ready)
    ask(world, res("3", "64Mi", "3", "128Mi"))
    await world.until(lambda: condition(world, "PodResizePending") is not None)
    since = (condition(world, "PodResizePending") or {})["lastTransitionTime"]
    await world.clock.advance(5)
    await world.kill_agent()
    await world.start_agent()
    await world.until(lambda: world.is_ready())
    assert world.events.reasons().count("ResizeDeferred") == 1
    assert (condition(world, "PodResizePending") or {})["lastTransitionTime"] == since


async def test_the_pod_as_a_whole_is_resized(world: World) -> None:
    world.create(container(), resources=res("100m", "64Mi", "100m", "64Mi"))
    await world.until(world.is_ready)
    world.cri.calls.clear()
    ask(world, {}, resources=res("200m", "64Mi", "200m", "64Mi"))
    await world.until(lambda: done(world))
    assert world.cgroups.have["u1"].cpu_quota == 20_000
    assert world.status()["resources"] == res("200m", "64Mi", "200m", "64Mi")
    assert len(world.cri.done("update_resources")) == 1, "a container without a limit has the pod's"


async def test_checkpoints_are_written_once_for_many_changes() -> None:
    files, clock = FakeCheckpoints(), FakeClock()
    made = Allocations(files, clock)
    await made.load()
    task = asyncio.create_task(made.run())
    for number in range(5):
        made.admit(pod(meta={"uid": f"u{number}"}))
    files.fail = [Temporary("disk full")]
    await clock.advance(1)
    assert checkpoint.ALLOCATED not in files.files or checkpoint.ACTUATED not in files.files
    await clock.advance(5)
    assert set(checkpoint.decode(files.files[checkpoint.ALLOCATED])) == {f"u{number}" for number in range(5)}
    task.cancel()
    await settle()


async def test_an_unreadable_checkpoint_is_set_aside_and_the_specs_count() -> None:
    files = FakeCheckpoints()
    files.files = {checkpoint.ALLOCATED: "{half", checkpoint.ACTUATED: checkpoint.encode({})}
    made = Allocations(files, FakeClock())
    await made.load()
    assert files.files == {f"{checkpoint.ALLOCATED}.unreadable": "{half", checkpoint.ACTUATED: checkpoint.encode({})}
    assert made.allocated("u") is None
