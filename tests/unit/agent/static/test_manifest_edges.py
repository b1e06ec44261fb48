"""The manifest directory and URL for real: files, inotify, an HTTP server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from agent.static.edge import folder_watch
from agent.static.edge.folder_watch import FolderWatch
from agent.static.edge.manifests import ManifestFolder, ManifestUrl
from nodelib.errors import Temporary


@pytest.fixture
async def watch(tmp_path: Path) -> AsyncIterator[FolderWatch]:
    made = FolderWatch(lambda: str(tmp_path / "m"))
    yield made
    await made.close()


async def names(folder: ManifestFolder) -> dict[str, bytes | str]:
    return {os.path.basename(one.path): one.problem or one.data for one in await folder.read() or ()}


async def test_hidden_files_directories_and_pipes_are_no_manifests(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("a")
    (tmp_path / ".hidden").write_text("b")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    found = await names(ManifestFolder(str(tmp_path), 100))
    assert found == {"a.yaml": b"a", "folder": "it is not a regular file", "pipe": "it is not a regular file"}


async def test_what_has_not_changed_is_the_same_value(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("a")
    folder = ManifestFolder(str(tmp_path), 100)
    first, again = await folder.read(), await folder.read()
    assert first is not None and again is not None and first[0] is again[0]
    file.write_text("b")
    third = await folder.read()
    assert third is not None and third[0].data == b"b"


async def test_one_file_may_be_the_path_and_may_be_missing(tmp_path: Path) -> None:
    folder = ManifestFolder(str(tmp_path / "one.yaml"), 100)
    assert await folder.read() is None
    (tmp_path / "one.yaml").write_text("x")
    assert await names(folder) == {"one.yaml": b"x"}
    assert folder.watched == str(tmp_path)


async def test_a_change_is_reported_at_once_and_a_deletion_by_name(tmp_path: Path, watch: FolderWatch) -> None:
    (tmp_path / "m").mkdir()
    watch.renew()
    waiting = asyncio.create_task(watch.wait(30))
    await asyncio.sleep(0)
    (tmp_path / "m/a.yaml").write_text("a")
    assert await asyncio.wait_for(waiting, 5) == frozenset()
    os.unlink(tmp_path / "m/a.yaml")
    (tmp_path / "m/a.yaml").write_text("a")
    deleted: frozenset[str] = frozenset()
    while not deleted:
        deleted = await asyncio.wait_for(watch.wait(30), 5)
    assert deleted == {"a.yaml"}


async def test_one_that_is_closed_while_somebody_waits_has_no_changes(tmp_path: Path, watch: FolderWatch) -> None:
    """An agent that ends, on a machine that is busy."""
    (tmp_path / "m").mkdir()
    watch.renew()
    waits = asyncio.create_task(watch.wait(0.02))
    await asyncio.sleep(0)
    await watch.close()
    assert await waits == frozenset()


async def test_a_slow_writer_is_waited_for(tmp_path: Path, watch: FolderWatch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_watch, "_QUIET", 10.0)  # a busy machine stretches this writer's pauses at will
    monkeypatch.setattr(folder_watch, "_SETTLE", 20.0)
    (tmp_path / "m").mkdir()
    watch.renew()
    with open(tmp_path / "m/a.yaml", "w", buffering=1) as file:
        waiting = asyncio.create_task(watch.wait(30))
        for _ in range(3):
            file.write("line\n")
            await asyncio.sleep(0.02)
            assert not waiting.done()
    await asyncio.wait_for(waiting, 5)


async def test_a_directory_made_again_is_followed_again(tmp_path: Path, watch: FolderWatch) -> None:
    watch.renew()
    assert await watch.wait(0.01) == frozenset()
    for _ in range(2):
        (tmp_path / "m").mkdir()
        watch.renew()
        waiting = asyncio.create_task(watch.wait(30))
        await asyncio.sleep(0)
        (tmp_path / "m/a.yaml").write_text("a")
        await asyncio.wait_for(waiting, 5)
        os.unlink(tmp_path / "m/a.yaml")
        (tmp_path / "m").rmdir()


async def test_a_url_is_asked_with_its_headers_and_anything_but_200_is_a_failure() -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.headers.get("X-Token", ""))
        return web.Response(text="pod", status=200 if request.path == "/ok" else 503)

    app = web.Application()
    app.router.add_get("/{rest:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        assert await ManifestUrl(f"{base}/ok", {"X-Token": ("t",)}, 100).read() == b"pod"
        with pytest.raises(Temporary, match="503"):
            await ManifestUrl(f"{base}/busy", {}, 100).read()
    finally:
        await runner.cleanup()
    assert asked == ["t", ""]
    with pytest.raises(Temporary, match="it is tried again"):
        await ManifestUrl(f"{base}/ok", {}, 100).read()
