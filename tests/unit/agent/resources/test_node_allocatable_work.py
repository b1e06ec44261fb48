"""Limits that cannot be written yet are tried again; a missing cgroup is reported before anything starts."""

from __future__ import annotations

import asyncio

import pytest

from agent.resources.edge.cgroups import CgroupTree
from agent.resources.plan.memory_qos import MemoryQos
from agent.resources.plan.node_allocatable import Reservation, reserved
from agent.resources.work.node_allocatable import NodeAllocatable, NodeAllocatableDeps
from nodelib.cgroups import Mounts
from nodelib.errors import Permanent, Temporary
from nodelib.tasks import cancel_and_wait
from tests.fakes.cgroup_files import FakeCgroupFiles
from tests.fakes.clock import FakeClock
from tests.fakes.pod_world import FakeEvents

KUBE = Reservation("kube-reserved", {"memory": "1Gi"}, "/kube.slice")


class Node:
    def __init__(self, fails: int = 0) -> None:
        self.files, self.clock, self.events = FakeCgroupFiles(), FakeClock(), FakeEvents()
        self.tree, self.fails = CgroupTree(Mounts(2, {"": self.files.top}), self.files), fails
        parts = NodeAllocatableDeps(self.tree, None, self.enforce, self.events, self.clock, lambda: {"name": "n1"})
        self.allocatable = NodeAllocatable(reserved({"kube-reserved"}, (KUBE,), 2, MemoryQos()), parts)

    async def enforce(self) -> None:
        if self.fails:
            self.fails -= 1
            raise Temporary("Device or resource busy", obj="/kubepods")


async def test_an_existing_cgroup_gets_its_limits() -> None:
    node = Node()
    await node.tree.make("/kube.slice", [])
    await node.allocatable.reserve()
    assert node.files.dump()["/kube.slice"] == {"memory.max": str(1 << 30), "memory.min": str(1 << 30)}
    assert node.events.reasons() == ["NodeAllocatableEnforced"]


async def test_a_missing_cgroup_stops_the_agent() -> None:
    with pytest.raises(Permanent, match=r"/kube.slice: enforce kube-reserved: there is no such cgroup .of memory"):
        await Node().allocatable.reserve()


async def test_the_limit_of_all_pods_is_tried_until_it_is_set() -> None:
    node = Node(fails=2)
    running = asyncio.create_task(node.allocatable.run())
    try:
        await node.clock.advance(121)
    finally:
        await cancel_and_wait(running)
    failed = "FailedNodeAllocatableEnforcement"
    assert node.events.reasons() == [failed, failed, "NodeAllocatableEnforced"]
