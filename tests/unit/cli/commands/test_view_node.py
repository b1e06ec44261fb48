"""What the page of `view` gets of a node: its agent's answers at a real socket, and of one that answers nonsense."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from aiohttp import web

from agent.eviction.model import Evicted, EvictionReport, Level
from agent.explain.model import Explanation, TimelineLine, Wait
from agent.explain.plan.document import to_json
from agent.images.model.images import HeldImage, Hold, HoldReason, ImageReport
from agent.stats.plan.disk_report import DiskPart, DiskReport, PodDisk
from cli.commands.view import node as view_node
from nodelib.json_values import Json

PULL = Wait("image of container web", "Pulling", since=5.0, progress="3 of 9 MiB", share=0.33)
LINES = (
    TimelineLine(1.0, "sandbox", 0.5, kind="sandbox"),
    TimelineLine(1.0, "network", 0.2, of="sandbox", kind="network", of_kind="sandbox"),
    TimelineLine(2.0, "ready", 0.0, kind="ready"),
)
WHY = {"pods": [to_json(Explanation("shop", "web", "u1", "node1", "Pending", "waits", (PULL,), timeline=LINES))]}
IMAGES = asdict(
    ImageReport(
        "node1", 9.0, 1000, 300, 85, 80, 0, (HeldImage("id", ("web:1",), 7, 1.0, 2.0, (Hold(HoldReason.PINNED),)),)
    )
)
EVICTION = asdict(
    EvictionReport(9.0, (Level("memory.available", 7, 9, 3, 0.0),), (), (Evicted("shop", "gone", 4.0, "low"),))
)


DISK = asdict(
    DiskReport(
        120,
        (PodDisk("shop", "web", 120, (DiskPart("volume", "data", 100), DiskPart("log", "main", 20, "no right"))),),
        3,
    )
)


def answering(answer: Json) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handler(_: web.Request) -> web.Response:
        return web.json_response(answer)

    return handler


@contextlib.asynccontextmanager
async def agent(folder: Path, monkeypatch: pytest.MonkeyPatch, **answers: Json) -> AsyncIterator[None]:
    path = str(folder / "agent.sock")
    app = web.Application()
    for name, answer in answers.items():
        app.router.add_get(f"/{name}", answering(answer))
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, path).start()
    monkeypatch.setattr("cli.commands.view.node.sockets", lambda cluster: {"this node": path})
    try:
        yield
    finally:
        await runner.cleanup()


async def test_the_agent_s_answers_become_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent(tmp_path, monkeypatch, why=WHY, images=IMAGES, eviction=EVICTION):
        found = await view_node.work_of(None, "node1")
        (pod,) = found.pods
        assert pod.key == ("shop", "web") and [one.kind for one in pod.steps] == ["sandbox", "network", "ready"]
        assert (pod.pulls[0].text, pod.pulls[0].share) == ("3 of 9 MiB", 0.33)
        assert found.disk is not None and (found.disk.images[0].held, found.disk.high) == ("pinned", 85)
        assert found.thresholds[0].available == 7 and found.evicted[0].pod == "shop/gone"
        assert found.daemons == () and found.silent == ()
        assert found.holders.unknown == "its agent answers 404", "one of an earlier version"
        assert await view_node.Averages(None).of("node1") == {}, "one is no average"


async def test_an_average_is_of_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent(tmp_path, monkeypatch, why={"pods": WHY["pods"] * 3}):
        assert (await view_node.Averages(None).of("node1"))["sandbox"] == 0.5


async def test_who_holds_the_disk_is_said_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent(tmp_path, monkeypatch, why=WHY, images=IMAGES, eviction=EVICTION, disk=DISK):
        found = (await view_node.work_of(None, "node1")).holders
    (pod,) = found.pods
    assert (found.used, found.left_out, pod.key, pod.used) == (120, 3, ("shop", "web"), 120)
    assert pod.parts == (("volume data", 100), ("log of container main (at least: no right)", 20))


async def test_another_node_s_agent_says_nothing_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent(tmp_path, monkeypatch, why=WHY, images=IMAGES, eviction=EVICTION):
        found = await view_node.work_of(None, "node2")
        assert found.pods == () and "no agent of this node" in found.silent[0]


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"used": "x"},
        {"used": 5, "pods": [{"name": 5}, 7]},
        {"pods": 5},
        {"levels": [{"signal": 5}], "evicted": "x", "pods": [{"uid": 5}]},
    ],
)
async def test_nonsense_of_an_agent_is_left_out(odd: Json, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with agent(tmp_path, monkeypatch, why=odd, images=IMAGES, eviction=odd, disk=odd):
        found = await view_node.work_of(None, "node1")
        assert found.holders.pods == ()
        assert (found.pods, found.thresholds, found.evicted) == ((), (), ())


async def test_an_agent_that_is_away_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("cli.commands.view.node.sockets", lambda cluster: {"this node": str(tmp_path / "none")})
    assert (await view_node.work_of(None, "node1")).silent
    assert await view_node.Averages(None).of("node1") == {}
