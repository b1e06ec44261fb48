"""The token bucket, and a client of the API server that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.rate_limiter import RateLimiter, TokenBucket
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.clock import FakeClock, settle
from tests.waiting import until

PODS = "/api/v1/namespaces/ns/pods"


def limiter(clock: FakeClock, qps: float, burst: int) -> RateLimiter:
    return RateLimiter(TokenBucket(qps, burst, clock.monotonic), clock.sleep)


async def test_those_who_wait_are_let_through_in_their_order() -> None:
    clock, passed = FakeClock(), []
    limit = limiter(clock, 2, 3)

    async def one(number: int) -> None:
        await limit.wait()
        passed.append((number, clock.monotonic()))

    tasks = [asyncio.create_task(one(number)) for number in range(6)]
    await settle()
    assert [number for number, _ in passed] == [0, 1, 2]
    await clock.advance(10)
    assert passed[3:] == [(3, 0.5), (4, 1.0), (5, 1.5)]
    await cancel_and_wait(*tasks)


async def test_who_gives_up_leaves_the_turn_to_the_next() -> None:
    clock = FakeClock()
    limit = limiter(clock, 1, 1)
    await limit.wait()
    waiting = asyncio.create_task(limit.wait())
    await settle()
    await cancel_and_wait(waiting)
    again = asyncio.create_task(limit.wait())
    await clock.advance(1)
    assert again.done() and again.result() == 1.0


@pytest.fixture
async def limited() -> AsyncIterator[tuple[FakeApiServer, KubeClient, FakeClock]]:
    clock = FakeClock()
    async with FakeApiServer() as api:
        client = KubeClient(ClusterAccess(api.url), user_agent="test", limit=limiter(clock, 10, 2))
        yield api, client, clock
        await client.close()


async def test_requests_wait_for_their_turn(limited: tuple[FakeApiServer, KubeClient, FakeClock]) -> None:
    _, client, clock = limited
    asked = [asyncio.create_task(client.get(PODS)) for _ in range(4)]
    await until(lambda: sum(task.done() for task in asked) == 2 and clock.sleeping == 2)
    await clock.advance(0.1)
    await until(lambda: sum(task.done() for task in asked) == 3)
    await clock.advance(0.1)
    await asyncio.gather(*asked)


async def test_a_watch_is_not_limited(limited: tuple[FakeApiServer, KubeClient, FakeClock]) -> None:
    _, client, clock = limited
    for _ in range(2):
        await client.get(PODS)
    opened = asyncio.Event()

    async def watch() -> None:
        async for _ in client.stream(PODS, {"resourceVersion": "0"}, on_open=opened.set):
            pass

    watching = asyncio.create_task(watch())
    await asyncio.wait_for(opened.wait(), 10)
    assert not clock.sleeping
    await cancel_and_wait(watching)
