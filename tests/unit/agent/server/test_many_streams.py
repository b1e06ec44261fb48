"""Logs that are followed, and other streams without end, by those who may do so in one namespace."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp
import pytest

from agent.common.model.errors import CriError
from agent.logs.plan.log_lines import LineFilter
from agent.server.work import container_logs
from nodelib.connections.limits import ConnectionLimits
from nodelib.tasks import cancel_and_wait
from tests.fakes.agent_view import add_pod
from tests.unit.agent.server.conftest import Bench
from tests.waiting import until


@contextlib.asynccontextmanager
async def followed(bench: Bench, namespace: str, count: int) -> AsyncIterator[list[int]]:
    """The answers to so many followers, who stay."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        url = bench.url(f"/containerLogs/{namespace}/{namespace}/main?follow=true")
        yield [(await session.get(url, ssl=bench.tls())).status for _ in range(count)]


async def test_one_namespace_leaves_room_for_the_others(bench: Bench) -> None:
    for number, name in enumerate(("mine", "yours", "theirs", "last")):
        path = bench.folder / f"{name}.log"
        path.write_bytes(b"")
        add_pod(bench.view, name, f"u{number + 2}", namespace=name, log_path=str(path))
    settings = bench.settings(mode="AlwaysAllow", anonymous=True)
    await bench.start(replace(settings, most_streams=7, most_streams_of_namespace=3))
    async with followed(bench, "mine", 5) as mine, followed(bench, "yours", 1) as yours:
        assert mine == [200, 200, 200, 429, 429]
        assert yours == [200]
        _, text = await bench.get("/containerLogs/mine/mine/main?follow=true")
        assert text == "3 logs, commands and ports of the pods of namespace mine are open already: close some"
        async with followed(bench, "theirs", 4) as theirs, followed(bench, "last", 1) as last:
            assert (theirs, last) == ([200, 200, 200, 429], [429])
            assert (await bench.get("/pods"))[0] == 200

    async def there_is_room() -> bool:
        async with followed(bench, "mine", 3) as again:
            return again == [200] * 3

    assert await until(there_is_room)


async def test_many_readers_of_long_logs_leave_the_loop_to_others(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (bench.folder / "0.log").write_bytes(b"2026-01-02T03:04:05Z stdout F x\n" * 10_000)
    fed, turns = list[int](), 0

    class Counted(LineFilter):
        def feed(self, lines: bytes) -> bytes:
            fed.append(turns)
            return super().feed(lines)

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(container_logs, "LineFilter", Counted)
    await bench.start(bench.settings(mode="AlwaysAllow", anonymous=True))
    counting = asyncio.create_task(count())
    answers = await asyncio.gather(*(bench.get("/containerLogs/ns/web/main") for _ in range(40)))
    await cancel_and_wait(counting)
    assert {(status, len(text)) for status, text in answers} == {(200, 20_000)}
    assert len(fed) >= 40 * 4
    assert max(Counter(fed).values()) <= 2, "parts of logs between two turns of anything else"


def test_streams_leave_connections_for_everything_else(bench: Bench) -> None:
    settings = bench.settings()
    assert settings.most_streams_of_namespace < settings.most_streams
    assert settings.most_streams <= ConnectionLimits().connections - 10 * ConnectionLimits().strangers


@pytest.mark.parametrize(
    ("path", "call"), [("/exec/{}/main?output=1&command=true", "exec_url"), ("/run/{}/main?cmd=true", "exec_sync")]
)
async def test_a_few_commands_begin_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, path: str, call: str
) -> None:
    """Each is some processes of the runtime: with 240 of them a pod of another namespace started after 13 s."""
    add_pod(bench.view, "other", "u2", namespace="other")
    begun, may_end = list[str](), asyncio.Event()

    async def begin(identity: str, *more: object, **options: object) -> object:
        begun.append(identity)
        await may_end.wait()
        raise CriError("ended", code="UNKNOWN")

    monkeypatch.setattr(bench.runtime, call, begin)
    await bench.start(bench.settings(mode="AlwaysAllow", anonymous=True))
    waiting = [asyncio.create_task(bench.get(path.format("ns/web"), method="POST")) for _ in range(20)]
    await until(lambda: begun)
    await asyncio.sleep(0.3)
    assert len(begun) == 4
    waiting.append(asyncio.create_task(bench.get(path.format("other/other"), method="POST")))
    await until(lambda: len(begun) > 5, seconds=5)  # each has its place for a second
    assert len(set(begun[4:8])) == 2, "the namespaces take turns"
    may_end.set()
    await asyncio.gather(*waiting)
    assert len(begun) == 21
