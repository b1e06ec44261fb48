"""The cgroups of the agent and of the system's other processes, on the kernel's own rules as a fake keeps them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable

from agent.resources.plan.cgroups import Write
from agent.resources.work.system_cgroups import SystemCgroupPaths, SystemCgroups
from nodelib.errors import Temporary
from nodelib.tasks import cancel_and_wait
from tests.fakes.clock import FakeClock


class Tree:
    """Each process is in one cgroup. `fails`: moves that go wrong from now on."""

    def __init__(self, *pids: int) -> None:
        self.of, self.made, self.fails = dict.fromkeys(pids, "/"), list[str](), 0

    async def make(self, path: str, writes: Iterable[Write]) -> None:
        self.made.append(path)

    async def attach(self, path: str, pids: Iterable[int]) -> None:
        if self.fails:
            self.fails -= 1
            raise Temporary("Device or resource busy", obj=path)
        assert path in self.made
        self.of.update(dict.fromkeys(pids, path))

    async def movable(self, path: str) -> frozenset[int]:
        return frozenset(pid for pid, group in self.of.items() if group == path)


async def test_the_agent_has_one_and_all_others_have_the_other() -> None:
    own = os.getpid()
    tree, clock = Tree(own, 70_001, 70_002), FakeClock()
    groups = SystemCgroups(SystemCgroupPaths("/kubelet", "/system"), tree, clock)
    await groups.setup()
    assert tree.of == {own: "/kubelet", 70_001: "/system", 70_002: "/system"}
    (work,) = groups.tasks().values()
    running = asyncio.create_task(work())
    try:
        tree.of[70_003] = "/"
        await clock.advance(61)
        assert tree.of[70_003] == "/system"
        tree.of[own], tree.fails = "/elsewhere", 1
        await clock.advance(61)
        assert tree.of[own] == "/elsewhere"
        await clock.advance(61)
        assert tree.of[own] == "/kubelet", "it is tried again"
    finally:
        await cancel_and_wait(running)


async def test_without_settings_nothing_is_moved_and_nothing_runs() -> None:
    tree = Tree(os.getpid(), 70_001)
    groups = SystemCgroups(SystemCgroupPaths(), tree, FakeClock())
    await groups.setup()
    assert not tree.made and set(tree.of.values()) == {"/"} and groups.tasks() == {}
