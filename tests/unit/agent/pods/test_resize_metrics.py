"""What is counted of resizes: who asks for what, what waits, why it goes on, and how long that took."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from agent.common.model.errors import CriError
from agent.pods.edge.resize_counts import ResizeCounts
from agent.resources.plan.resize_labels import counted, operations, priority_bucket
from tests.builders.metrics import series
from tests.builders.pods import container, pod
from tests.fakes.pod_world import World
from tests.unit.agent.pods.test_resize_plan import SMALL, res
from tests.unit.agent.pods.test_resizes import ask, condition, done

TOO_MUCH = res("3", "64Mi", "3", "128Mi")
ACCEPTED, DEFERRED = "kubelet_pod_deferred_accepted_resizes_total", "kubelet_pod_deferred_resize_duration_seconds"


async def deferred(world: World, **spec: Any) -> None:
    """u1 waits for more than the node has left, which u2 holds."""
    world.create(container(resources=SMALL), uid="u1", name="one", **spec)
    world.create(container(resources=res("1500m", "64Mi")), uid="u2", name="two", terminationGracePeriodSeconds=1)
    await world.until(lambda: world.is_ready("u1") and world.is_ready("u2"))
    ask(world, res("600m", "64Mi", "600m", "128Mi"))
    await world.until(lambda: condition(world, "PodResizePending") is not None)


async def test_what_containers_ask_for_and_how_long_it_took(world: World) -> None:
    world.create(container(resources=SMALL))
    await world.until(world.is_ready)
    world.cri.fail["update_resources"] = [CriError("no such cgroup")]
    world.cri.before["update_resources"] = lambda what: world.clock.sleep(0.25)
    ask(world, res("150m", "64Mi", "200m", "192Mi"))
    await world.until(lambda: done(world))
    assert series(world.metrics, "kubelet_container_requested_resizes_total") == {
        ("memory", "limits", "increase"): 1,
        ("cpu", "requests", "increase"): 1,
    }
    assert series(world.metrics, "kubelet_pod_resize_duration_milliseconds_count") == {("false",): 1, ("true",): 1}
    assert series(world.metrics, "kubelet_pod_resize_duration_milliseconds_sum")["true",] >= 250
    assert series(world.metrics, ACCEPTED) == {} == series(world.metrics, f"{DEFERRED}_count")


async def test_a_pod_that_goes_makes_room(world: World) -> None:
    await deferred(world, priority=7)
    registry = CollectorRegistry()
    registry.register(ResizeCounts(lambda: counted((one.desired, one.resize) for one in world.registry.memories())))
    text = generate_latest(registry).decode()
    assert 'kubelet_pod_pending_resizes{priority_bucket="medium",reason="deferred"} 1.0\n' in text
    assert "kubelet_pod_in_progress_resizes 0.0\n" in text
    since = world.clock.now()
    await world.clock.advance(20)
    world.api.vanish("u2")
    await world.until(lambda: done(world), seconds=30)
    assert series(world.metrics, ACCEPTED) == {("pods_removed",): 1}
    assert series(world.metrics, f"{DEFERRED}_count") == {("accepted", "medium"): 1}
    assert 19 <= series(world.metrics, f"{DEFERRED}_sum")["accepted", "medium"] <= world.clock.now() - since + 1
    assert "kubelet_pod_pending_resizes{" not in generate_latest(registry).decode()


async def test_a_pod_that_shrinks_makes_room(world: World) -> None:
    await deferred(world)
    ask(world, res("1", "64Mi"), uid="u2")
    await world.until(lambda: done(world) and done(world, "u2"), seconds=30)
    assert series(world.metrics, ACCEPTED) == {("pod_resized",): 1}, "once it is smaller, not when it asks"


async def test_room_that_nobody_told_of_is_found_in_time(world: World) -> None:
    await deferred(world)
    world.node = type(world.node)(name="n1", allocatable={"cpu": "4", "memory": "4Gi", "pods": "10"})
    await world.until(lambda: done(world), seconds=200, step=10)
    assert series(world.metrics, ACCEPTED) == {("periodic_retry",): 1}


async def test_a_pod_that_has_ended_makes_room(world: World) -> None:
    world.create(container(resources=SMALL), uid="u1", name="one")
    world.create(container("job", resources=res("1500m", "64Mi")), uid="u2", name="two", restartPolicy="Never")
    await world.until(lambda: world.is_ready("u1") and world.is_ready("u2"))
    ask(world, res("600m", "64Mi", "600m", "128Mi"))
    await world.until(lambda: condition(world, "PodResizePending") is not None)
    world.cri.exit("job")
    await world.until(lambda: done(world), seconds=30)
    assert series(world.metrics, ACCEPTED) == {("pod_terminated",): 1}


async def test_a_withdrawn_resize_and_one_of_a_pod_that_ends_were_deferred_too(world: World) -> None:
    await deferred(world)
    ask(world, SMALL)
    await world.until(lambda: done(world))
    assert series(world.metrics, f"{DEFERRED}_count") == {("reverted", "normal"): 1}
    ask(world, TOO_MUCH)
    await world.until(lambda: condition(world, "PodResizePending") is not None)
    world.api.ask_deletion("u1", 1)
    await world.until(lambda: "u1" not in world.registry.workers)
    assert series(world.metrics, f"{DEFERRED}_count")["terminated", "normal"] == 1
    assert series(world.metrics, ACCEPTED) == {}


def test_operations_on_amounts() -> None:
    before = pod(container(resources={"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}))
    now = pod(container(resources={"requests": {"cpu": "500m", "memory": "1024Mi"}, "limits": {"cpu": "1"}}))
    assert sorted(operations(before, now)) == [
        ("cpu", "limits", "add"),
        ("cpu", "requests", "decrease"),
        ("memory", "limits", "remove"),
    ]


@pytest.mark.parametrize(
    ("priority", "bucket"),
    [
        (None, "normal"),
        (0, "normal"),
        (2_000_001_000, "system-critical"),
        (100_000, "high"),
        (99_999, "medium"),
        (-999, "low"),
        (-1000, "very-low"),
    ],
)
def test_priorities_have_a_few_labels(priority: int | None, bucket: str) -> None:
    assert priority_bucket(pod(container(), priority=priority)) == bucket
