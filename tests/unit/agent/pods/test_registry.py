"""The registry can be read while pods come and go: metrics are collected in another thread."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, cast

import pytest

from agent.common.model.pods import ContainerState, ObservedPod, RunState
from agent.pods.work import registry as module
from agent.pods.work.memory import PodMemory
from agent.pods.work.registry import PodRegistry
from tests.builders.pods import container, pod, pod_json
from tests.fakes.pod_world import World


class _Worker:
    def __init__(self, memory: Any) -> None:
        self.memory = memory


class _GrowingWorker:
    """Each time its memory is read, one more worker appears in the registry."""

    def __init__(self, registry: PodRegistry, worker: Any) -> None:
        self._registry, self._worker = registry, worker
        self.growing = False

    @property
    def memory(self) -> Any:
        if self.growing:
            more = replace(self._worker.memory, pod=pod(meta={"uid": f"more-{len(self._registry.workers)}"}))
            self._registry.add(cast(Any, _Worker(more)))
        return self._worker.memory


async def test_pods_can_be_added_while_all_are_read() -> None:
    world = World()
    await world.start_agent()
    try:
        world.create()
        await world.until(world.is_ready)
        registry = world.registry
        worker = registry.workers["u1"]
        for read in (registry.pods, registry.memories, registry.active):
            growing = _GrowingWorker(registry, worker)
            registry.add(cast(Any, growing))
            growing.growing = True
            try:
                assert len(list(read())) == 1
            finally:
                for uid in tuple(registry.workers):
                    registry.remove(uid)
                registry.add(worker)
    finally:
        await world.kill_agent()


async def test_pods_without_a_worker_are_seen_as_the_runtime_shows_them() -> None:
    """After a restart without an API server no source has listed the running pods: their usage is still measured."""
    known = ObservedPod("u1", (), (ContainerState("c", "s", "u1", "app", 0, RunState.RUNNING, created_at=1),))
    registry = PodRegistry(lambda uid: known if uid == "u1" else ObservedPod(uid))
    assert registry.observed("u1") is known
    assert registry.observed("u2") == ObservedPod("u2")


async def test_a_pod_is_found_by_its_uid() -> None:
    world = World()
    await world.start_agent()
    try:
        world.create()
        await world.until(world.is_ready)
        left_alone = pod(meta={"uid": "u2"})
        world.registry.unmanaged["u2"] = left_alone
        found = {one.uid: one for one in world.registry.pods()}
        assert found.keys() == {"u1", "u2"}
        assert all(world.registry.pod_by_uid(uid) is one for uid, one in found.items())
        assert world.registry.pod_by_uid("u3") is None
    finally:
        await world.kill_agent()


async def test_services_and_volumes_are_fetched_side_by_side() -> None:
    world = World()
    world.configs.slow = asyncio.Event()
    await world.start_agent()
    try:
        world.volumes.missing = 'secret "keys" not found'
        world.create()
        await world.until(lambda: "FailedMount" in world.events.reasons())
        assert any("keys" in message for _, reason, message in world.events.emitted if reason == "FailedMount")
    finally:
        await world.kill_agent()


async def test_pods_that_have_ended_cost_later_ones_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever names the node in a pod that it rejects may have thousands there, each of which was looked at for each
    that came: 3 ms of the event loop beside 2,000 of them, for pods of anybody."""
    world = World()
    await world.start_agent()
    huge = container(resources={"requests": {"cpu": "1000"}})
    for number in range(300):
        world.api.create(pod_json(f"p{number}", huge, meta={"uid": f"u{number}"}, restartPolicy="Always"))
    await world.until(lambda: all(one["status"].get("reason") for one in world.api.pods.values()))
    assert world.registry.active() == []
    looked, is_over = list[str](), module._is_over

    def look(memory: PodMemory) -> bool:
        looked.append(memory.pod.uid)
        return is_over(memory)

    monkeypatch.setattr(module, "_is_over", look)
    world.create(uid="late")
    await world.until(lambda: world.is_ready("late"))
    assert [one.uid for one in world.registry.active()] == ["late"] and set(looked) == {"late"}
    await world.kill_agent()


async def test_a_pod_of_which_its_first_object_says_that_it_has_ended_counts_once_it_runs() -> None:
    """Somebody had written that, and another object came before its worker had looked: its CPUs and devices were free
    for others for as long as it ran."""
    world = World()
    await world.start_agent()
    raw = pod_json("late", container(), meta={"uid": "late", "resourceVersion": "1"})
    world.workers.on_pod("ADDED", {**raw, "status": {"phase": "Failed"}}, None)
    assert world.registry.active() == []
    world.workers.on_pod("MODIFIED", raw, raw)
    await world.until(lambda: world.registry.observed("late").containers)
    assert [one.uid for one in world.registry.active()] == ["late"]
    await world.kill_agent()
