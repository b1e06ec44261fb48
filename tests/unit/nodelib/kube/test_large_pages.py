"""Objects that are so large that few of them fit into one answer."""

from __future__ import annotations

import asyncio

from aiohttp import web

from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.listing import listed
from nodelib.kube.reflector import Reflector
from nodelib.tasks import cancel_and_wait
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.nonsense import Nonsense
from tests.waiting import until

SERVICES = "/api/v1/services"


def service(name: str) -> Json:
    return {"metadata": {"namespace": "default", "name": name}, "spec": {"type": "ClusterIP"}}


def too_many(request: web.Request) -> Nonsense | None:
    """1.4 MB of `<` are 8.4 MB as Go writes them: ten in one answer are more than is read of one."""
    return huge if int(request.query.get("limit", 0)) > 7 else None


async def huge(request: web.Request, true: bytes) -> web.StreamResponse:
    return web.Response(body=b" " * (65 << 20), content_type="application/json")


async def test_a_reflector_asks_for_so_few_that_they_fit() -> None:
    async with FakeApiServer() as api:
        for number in range(12):
            await api.put(f"{SERVICES}/s{number}", service(f"s{number}"))
        api.nonsense, api.streams = too_many, False
        async with KubeClient(ClusterAccess(api.url), user_agent="test") as client:
            reflector = Reflector(client, SERVICES, name="services")
            task = asyncio.create_task(reflector.run())
            try:
                await until(reflector.synced.is_set, seconds=20)
            finally:
                await cancel_and_wait(task)
    assert len(reflector.store) == 12


async def test_a_command_asks_for_so_few_that_they_fit() -> None:
    async with FakeApiServer() as api:
        for number in range(12):
            await api.put(f"{SERVICES}/s{number}", service(f"s{number}"))
        api.nonsense = too_many
        async with KubeClient(ClusterAccess(api.url), user_agent="test") as client:
            found = await listed(client, SERVICES, 100)
    assert len(found.items) == 12 and found.whole
