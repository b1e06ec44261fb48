"""/why, /images, /eviction and /disk on the unix socket for root and on the port of the API."""

from __future__ import annotations

import json
import logging
import stat
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent.eviction.model import EvictionReport, Level
from agent.explain.model import Explanation
from agent.stats.model import CgroupSample, ContainerStats, FsUsage, NodeStats, PodStats, Snapshot
from nodelib.json_values import Json
from tests.unit.agent.server.conftest import Bench


@dataclass(frozen=True)
class Record:
    name: str


def explanation(name: str) -> Explanation:
    return Explanation("ns", name, f"uid-{name}", "node-1", "Running", "Running and ready")


def document(name: str) -> Json:
    rest = {"phase": "Running", "summary": "Running and ready", "waits": [], "ends": [], "timeline": [], "costs": []}
    return {"namespace": "ns", "name": name, "uid": f"uid-{name}", "node": "node-1", **rest}


class Explains:
    async def pod(self, namespace: str, name: str) -> Explanation | None:
        return explanation(name) if (namespace, name) == ("ns", "web") else None

    async def all(self) -> list[Explanation]:
        return [explanation("web"), explanation("db")]


class Images:
    async def report(self) -> Record:
        return Record("disk")


class Evictions:
    def report(self) -> EvictionReport:
        return EvictionReport(5.0, (Level("memory.available", 7, 9, 3, 0.0),), ("DiskPressure",))


class Stats:
    async def snapshot(self, *, storage: bool) -> Snapshot:
        sample = CgroupSample("/", 1)
        logs = ContainerStats("c1", "main", "", 1, sample, logs=FsUsage(1, used=7 if storage else 0))
        return Snapshot(NodeStats("node-1", 1, sample, 1, 1), (PodStats("u", "ns", "web", 1, sample, (logs,)),))


PARTS: dict[str, Any] = {"explains": Explains(), "images": Images(), "eviction": Evictions(), "stats": Stats()}


async def _get(socket: Path, path: str) -> tuple[int, str]:
    connector = aiohttp.UnixConnector(path=str(socket))
    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"http://node{path}") as answer:
        return answer.status, await answer.text()


async def test_the_socket_is_for_root_and_answers(bench: Bench, tmp_path: Path) -> None:
    socket = tmp_path / "run" / "node.sock"
    await bench.start(replace(bench.settings(), local_socket=str(socket)), **PARTS)
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    assert [entry.name for entry in socket.parent.iterdir()] == ["node.sock"]
    status, text = await _get(socket, "/why")
    assert (status, json.loads(text)) == (200, {"pods": [document("web"), document("db")]})
    assert json.loads((await _get(socket, "/why/ns/web"))[1]) == document("web")
    assert await _get(socket, "/why/ns/gone") == (404, 'this node has no pod "ns/gone"\n')
    assert json.loads((await _get(socket, "/images"))[1]) == {"name": "disk"}
    report = json.loads((await _get(socket, "/eviction"))[1])
    assert (report["conditions"], report["levels"][0]["available"]) == (["DiskPressure"], 7)
    (pod,) = json.loads((await _get(socket, "/disk"))[1])["pods"]
    assert (pod["name"], pod["used"], pod["parts"][0]["kind"]) == ("web", 7, "log")
    assert "kubeletconfig" in json.loads((await _get(socket, "/configz"))[1])
    assert (await _get(socket, "/pods"))[0] == 404


async def test_without_the_socket_the_other_listeners_still_work(
    bench: Bench, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder")
    settings = replace(bench.settings(mode="AlwaysAllow", anonymous=True), local_socket=str(tmp_path / "file" / "s"))
    with caplog.at_level(logging.WARNING):
        await bench.start(settings, **PARTS)
    assert "no local socket" in caplog.text
    assert (await bench.get("/pods"))[0] == 200


async def test_the_port_needs_the_right_to_proxy(bench: Bench) -> None:
    await bench.start(bench.settings(), **PARTS)
    assert (await bench.get("/why"))[0] == 401
    assert json.loads((await bench.get("/why/ns/web", bench.admin()))[1]) == document("web")
    bench.reviewer.allowed.clear()
    stranger = bench.tls(bench.authority.issue("jane", "jane"))
    assert (await bench.get("/images", stranger))[0] == 403
