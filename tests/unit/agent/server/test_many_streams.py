"""Logs that are followed, and other streams without end, by those who may do so in one namespace."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace

import aiohttp

from nodelib.connections import ConnectionLimits
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


def test_streams_leave_connections_for_everything_else(bench: Bench) -> None:
    settings = bench.settings()
    assert settings.most_streams_of_namespace < settings.most_streams
    assert settings.most_streams <= ConnectionLimits().connections - 10 * ConnectionLimits().strangers
