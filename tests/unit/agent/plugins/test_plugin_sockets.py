"""Sockets in a real directory: its changes reach the plugin manager as events, while no time passes for its audits."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from agent.common.edge.inotify import Inotify, Watch
from agent.plugins.edge.registration import PluginSockets
from agent.plugins.model import PluginInfo, SocketFile
from agent.plugins.work import PluginManager
from nodelib.errors import Temporary
from tests.fakes.clock import FakeClock
from tests.waiting import until


class Plugins:
    """The registration services behind all sockets and the handler of their type: `registered` by name."""

    def __init__(self) -> None:
        self.registered: set[str] = set()

    async def info(self, socket: SocketFile) -> PluginInfo:
        return PluginInfo("CSIPlugin", Path(socket.path).stem, socket.path)

    async def notify(self, socket: SocketFile, error: str) -> None:
        assert not error

    def validate(self, info: PluginInfo) -> None:
        return None

    async def register(self, info: PluginInfo) -> None:
        self.registered.add(info.name)

    async def deregister(self, info: PluginInfo) -> None:
        self.registered.discard(info.name)


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    return tmp_path / "r"


@pytest.fixture
async def plugins(registry: Path) -> AsyncIterator[Plugins]:
    """A plugin manager that is running, with a clock that stands still."""
    made, sockets = Plugins(), PluginSockets(str(registry))
    task = asyncio.create_task(PluginManager(sockets, made, {"CSIPlugin": made}, FakeClock()).run())
    await until(registry.is_dir)
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    sockets.close()


def listen(path: Path) -> None:
    """Create a socket at `path`, as a plugin does when it starts."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


async def appear(plugins: Plugins, folder: Path, *names: str) -> None:
    """Plugins start in `folder`, each one after the one before is registered."""
    for name in names:
        listen(folder / f"{name}.sock")
        await until(partial(plugins.registered.__contains__, name), 5)


async def test_a_socket_that_appears_and_one_that_goes(registry: Path, plugins: Plugins) -> None:
    await appear(plugins, registry, "a", "b")
    (registry / "a.sock").unlink()
    await until(lambda: plugins.registered == {"b"}, 5)


async def test_sockets_in_a_new_folder(registry: Path, plugins: Plugins) -> None:
    inner = registry / "driver" / "inner"
    inner.mkdir(parents=True)
    await appear(plugins, inner, "a", "b")


@pytest.mark.parametrize("name", ["", "driver"])
async def test_a_folder_that_is_removed_and_created_again(registry: Path, plugins: Plugins, name: str) -> None:
    folder = registry / name
    folder.mkdir(exist_ok=True)
    await appear(plugins, folder, "old")
    shutil.rmtree(folder)
    await until(lambda: not plugins.registered, 5)
    folder.mkdir(exist_ok=True)
    await appear(plugins, folder, "new", "newer")


async def test_a_folder_that_is_replaced_by_another(registry: Path, plugins: Plugins, tmp_path: Path) -> None:
    folder = registry / "driver"
    folder.mkdir()
    await appear(plugins, folder, "old")
    (tmp_path / "other").mkdir()
    folder.rename(tmp_path / "moved")
    (tmp_path / "other").rename(folder)
    await until(lambda: not plugins.registered, 5)
    await appear(plugins, folder, "new", "newer")


async def test_a_folder_that_cannot_be_watched_is_scanned_nevertheless(
    registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Inotify.watch

    def refused(self: Inotify, directory: str) -> Watch:
        if directory.endswith("driver"):
            raise Temporary("No space left on device", obj="inotify")
        return watch(self, directory)

    monkeypatch.setattr(Inotify, "watch", refused)
    (registry / "driver").mkdir(parents=True)
    listen(registry / "driver" / "g.sock")
    sockets = PluginSockets(str(registry))
    try:
        assert [Path(one.path).name for one in await sockets.scan()] == ["g.sock"]
    finally:
        sockets.close()


async def test_hidden_sockets_deep_folders_and_other_files_are_no_plugins(registry: Path) -> None:
    deep = registry / "1" / "2" / "3" / "4"
    deep.mkdir(parents=True)
    for path in (registry / ".hidden.sock", deep / "deep.sock", deep.parent / "shown.sock"):
        listen(path)
    (registry / "file.sock").write_text("")
    sockets = PluginSockets(str(registry))
    try:
        assert [Path(one.path).name for one in await sockets.scan()] == ["shown.sock"]
    finally:
        sockets.close()


async def test_folders_that_come_and_go_without_end_do_not_keep_sockets_from_being_found(
    registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each new folder all was listed once more, as a socket might be in it: that never ended."""
    sockets, walk, walks = PluginSockets(str(registry)), PluginSockets._walk, list[Path]()

    def flapping(self: PluginSockets) -> tuple[dict[str, tuple[int, int]], list[SocketFile]]:
        for gone in walks[-1:]:
            gone.rmdir()
        walks.append(registry / f"folder{len(walks)}")
        walks[-1].mkdir(parents=True)
        return walk(self)

    monkeypatch.setattr(PluginSockets, "_walk", flapping)
    registry.mkdir()
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(registry / "a.sock"))
            async with asyncio.timeout(20):
                assert [one.path for one in await sockets.scan()] == [str(registry / "a.sock")]
    finally:
        sockets.close()
