"""Plugins that come, hang, fail and leave."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

import pytest

from agent.common.model.errors import PluginError
from agent.plugins.model import PluginInfo, SocketFile
from agent.plugins.work import PluginManager
from nodelib.errors import Invalid
from tests.fakes.clock import FakeClock, settle


class World:
    """Sockets, the plugins behind them (by path), and the one handler, which keeps a diary."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.found: set[SocketFile] = set()
        self.infos: dict[str, PluginInfo] = {}
        self.hangs: set[str] = set()
        self.told: list[tuple[str, str]] = []
        self.diary: list[str] = []
        self.changed = asyncio.Event()

    def come(self, name: str, inode: int = 1, kind: str = "CSIPlugin") -> None:
        path = f"/r/{name}.sock"
        self.found = {one for one in self.found if one.path != path} | {SocketFile(path, inode)}
        self.infos[path] = PluginInfo(kind, name, path, ("1.0.0",))
        self.changed.set()

    def leave(self, name: str) -> None:
        self.found = {one for one in self.found if one.path != f"/r/{name}.sock"}
        self.changed.set()

    async def scan(self) -> frozenset[SocketFile]:
        return frozenset(self.found)

    async def wait(self, timeout: float) -> None:
        await self.changed.wait()
        self.changed.clear()

    async def info(self, socket: SocketFile) -> PluginInfo:
        if socket.path in self.hangs:
            await asyncio.Event().wait()
        if socket.path not in self.infos:
            raise PluginError("connection refused", code="UNAVAILABLE")
        return self.infos[socket.path]

    async def notify(self, socket: SocketFile, error: str) -> None:
        self.told.append((socket.path, error))

    def validate(self, info: PluginInfo) -> None:
        if info.name == "bad":
            raise Invalid("it is bad")

    async def register(self, info: PluginInfo) -> None:
        self.diary.append(f"+{info.name}")

    async def deregister(self, info: PluginInfo) -> None:
        self.diary.append(f"-{info.name}")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    task = asyncio.create_task(PluginManager(made, made, {"CSIPlugin": made}, made.clock).run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_plugin_comes_starts_anew_and_leaves(world: World) -> None:
    changes: tuple[Callable[[], None], ...] = (
        lambda: world.come("a"),
        lambda: world.come("a", 2),
        lambda: world.leave("a"),
    )
    for change in changes:
        change()
        await settle(60)
    assert world.diary == ["+a", "-a", "+a", "-a"] and world.told == [("/r/a.sock", "")] * 2


async def test_one_that_hangs_keeps_nobody_waiting(world: World) -> None:
    world.hangs.add("/r/slow.sock")
    world.come("slow")
    await settle()
    world.come("a")
    await settle(60)
    assert world.diary == ["+a"]


async def test_it_is_tried_again_until_it_answers(world: World) -> None:
    world.come("a")
    del world.infos["/r/a.sock"]
    for _ in range(5):
        await world.clock.advance(1)
    world.infos["/r/a.sock"] = PluginInfo("CSIPlugin", "a", "/r/a.sock")
    await world.clock.advance(10)
    assert world.diary == ["+a"]


async def test_a_plugin_is_told_why_it_cannot_be_had(world: World) -> None:
    world.come("bad")
    world.come("odd", kind="Toaster")
    await settle(60)
    assert world.diary == []
    assert dict(world.told)["/r/odd.sock"].endswith(
        "no handler registered for plugin type: Toaster at socket /r/odd.sock"
    )
    assert "it is bad" in dict(world.told)["/r/bad.sock"]
