"""Plugins that appear, hang, fail and leave: the plugin manager over fakes, in virtual time."""

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
        self.notified: list[tuple[str, str]] = []
        self.diary: list[str] = []
        self.event = asyncio.Event()
        self.scans, self.scan_takes = 0, 0.0

    def appear(self, name: str, inode: int = 1, kind: str = "CSIPlugin") -> None:
        path = f"/r/{name}.sock"
        self.found = {one for one in self.found if one.path != path} | {SocketFile(path, inode)}
        self.infos[path] = PluginInfo(kind, name, path, ("1.0.0",))
        self.event.set()

    def leave(self, name: str) -> None:
        self.found = {one for one in self.found if one.path != f"/r/{name}.sock"}
        self.event.set()

    async def scan(self) -> frozenset[SocketFile]:
        self.scans += 1
        if self.scan_takes:
            await self.clock.sleep(self.scan_takes)
        return frozenset(self.found)

    async def changed(self) -> None:
        await self.event.wait()
        self.event.clear()

    async def info(self, socket: SocketFile) -> PluginInfo:
        if socket.path in self.hangs:
            await asyncio.Event().wait()
        if socket.path not in self.infos:
            raise PluginError("connection failed", code="UNAVAILABLE")
        return self.infos[socket.path]

    async def notify(self, socket: SocketFile, error: str) -> None:
        self.notified.append((socket.path, error))

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


async def test_a_plugin_appears_restarts_and_leaves(world: World) -> None:
    changes: tuple[Callable[[], None], ...] = (
        lambda: world.appear("a"),
        lambda: world.appear("a", 2),
        lambda: world.leave("a"),
    )
    for change in changes:
        change()
        await settle(60)
    assert world.diary == ["+a", "-a", "+a", "-a"] and world.notified == [("/r/a.sock", "")] * 2


async def test_a_plugin_that_hangs_does_not_delay_others(world: World) -> None:
    world.hangs.add("/r/slow.sock")
    world.appear("slow")
    await settle()
    world.appear("a")
    await settle(60)
    assert world.diary == ["+a"]


async def test_many_that_hang_do_not_delay_others_for_long(world: World) -> None:
    """A driver that hangs while it says what it is has two minutes: with 32 of them nobody else was registered for as
    long, and with twice as many for twice as long."""
    for number in range(64):
        world.hangs.add(f"/r/slow{number}.sock")
        world.appear(f"slow{number}")
    await settle()
    world.appear("a")
    for _ in range(12):
        await world.clock.advance(1)
    assert world.diary == ["+a"]


async def test_a_plugin_with_two_registrars_stays_when_one_of_them_goes(world: World) -> None:
    """It was gone, and nobody registered it again."""
    world.appear("a")
    await settle(60)
    world.appear("b")
    world.infos["/r/b.sock"] = world.infos["/r/a.sock"]
    await settle(60)
    world.leave("a")
    await settle(60)
    assert world.diary == ["+a", "+a"]
    world.leave("b")
    await settle(60)
    assert world.diary == ["+a", "+a", "-a"]


async def test_it_is_tried_again_until_it_answers(world: World) -> None:
    world.appear("a")
    del world.infos["/r/a.sock"]
    for _ in range(5):
        await world.clock.advance(1)
    world.infos["/r/a.sock"] = PluginInfo("CSIPlugin", "a", "/r/a.sock")
    await world.clock.advance(10)
    assert world.diary == ["+a"]


async def test_a_plugin_is_notified_why_it_is_not_registered(world: World) -> None:
    world.appear("bad")
    world.appear("odd", kind="Toaster")
    await settle(60)
    assert world.diary == []
    assert dict(world.notified)["/r/odd.sock"].endswith(
        "no handler registered for plugin type: Toaster at socket /r/odd.sock"
    )
    assert "it is bad" in dict(world.notified)["/r/bad.sock"]


async def test_an_unexpected_error_is_not_tried_all_the_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(info: PluginInfo) -> None:
        world.diary.append("try")
        raise KeyError("a bug")

    monkeypatch.setattr(world, "register", broken)
    world.appear("a")
    await settle(500)
    assert world.diary == ["try"]
    await world.clock.advance(1)
    assert len(world.diary) in (2, 3)


async def test_a_folder_that_changes_all_the_time_is_looked_at_for_a_part_of_it(world: World) -> None:
    await settle()
    world.scan_takes, before = 0.2, world.scans
    for _ in range(100):
        world.event.set()
        await world.clock.advance(0.1)
    assert 8 <= world.scans - before <= 12
