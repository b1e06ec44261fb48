"""The registry can be read while pods come and go: metrics are collected in another thread."""

from __future__ import annotations

from typing import Any

from agent.pods.work.memory import PodMemory
from agent.pods.work.pod_worker import PodWorker
from tests.fakes.pod_world import World


class _GrowingWorker:
    """A worker; each time its memory is read, another pod is added."""

    def __init__(self, workers: dict[str, Any], worker: PodWorker) -> None:
        self._workers, self._worker = workers, worker

    @property
    def memory(self) -> PodMemory:
        self._workers[f"more{len(self._workers)}"] = self._worker
        return self._worker.memory


async def test_pods_can_be_added_while_all_are_read() -> None:
    world = World()
    await world.start_agent()
    try:
        world.create()
        await world.until(world.is_ready)
        workers: dict[str, Any] = world.registry.workers
        worker = workers["u1"]
        for read in (world.registry.pods, world.registry.memories, world.registry.active):
            workers["u1"] = _GrowingWorker(workers, worker)
            try:
                assert len(list(read())) == 1
            finally:
                workers.clear()
                workers["u1"] = worker
    finally:
        await world.kill_agent()
