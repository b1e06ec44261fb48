"""Lists of commands: page by page, bounded, and without what has a wrong type."""

from __future__ import annotations

import pytest

from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import KubeClient
from nodelib.kube.listing import listed
from tests.fakes.apiserver import FakeApiServer


@pytest.mark.parametrize(("count", "most", "whole"), [(0, 1000, True), (1200, 1200, True), (1201, 1200, False)])
async def test_pages(count: int, most: int, whole: bool) -> None:
    async with FakeApiServer() as api:
        for number in range(count):
            await api.put(f"/api/v1/namespaces/ns/pods/p{number}", {"metadata": {"name": f"p{number}"}})
        client = KubeClient(ClusterAccess(api.url), user_agent="test")
        try:
            found = await listed(client, "/api/v1/namespaces/ns/pods", most)
        finally:
            await client.close()
    assert (len(found.items), found.whole) == (min(count, most), whole)
    assert all("limit=500" in path for _, path in api.requests), "an answer of all pods may be too large"


class Endless:
    """A server that always has another page."""

    def __init__(self) -> None:
        self.calls = 0

    async def get(self, path: str, params: object) -> object:
        self.calls += 1
        return {"items": [], "metadata": {"continue": "more"}}


async def test_a_list_without_end() -> None:
    server = Endless()
    found = await listed(server, "/api/v1/pods", 2000)  # type: ignore[arg-type]
    assert not found.whole and server.calls < 20
