"""rest_client_*: every request to an API server is counted by its answer, also those that get none, and watches."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from nodelib.kube.access import ClusterAccess
from nodelib.kube.client import ApiError, ApiUnreachable, KubeClient
from nodelib.kube.request_metrics import RequestMetrics
from tests.fakes.apiserver import FakeApiServer

PODS = "/api/v1/namespaces/ns/pods"


def counted(registry: CollectorRegistry) -> dict[tuple[str, str, str], float]:
    """(method, code, host) -> requests."""
    return {
        (sample.labels["method"], sample.labels["code"], sample.labels["host"]): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "rest_client_requests_total"
    }


async def test_requests_are_counted_by_method_and_answer() -> None:
    registry = CollectorRegistry()
    async with FakeApiServer() as server:
        host = server.url.removeprefix("http://")
        measured = RequestMetrics(registry)
        async with KubeClient(ClusterAccess(server.url), user_agent="test", measured=measured) as client:
            await client.post(PODS, {"metadata": {"namespace": "ns", "name": "a"}})
            await client.get(f"{PODS}/a")
            with pytest.raises(ApiError):
                await client.get(f"{PODS}/b")
            async for _ in client.stream(PODS, {"resourceVersion": "0"}):
                break
    assert counted(registry) == {("POST", "200", host): 1, ("GET", "200", host): 2, ("GET", "404", host): 1}
    took = {"verb": "GET", "host": host}
    assert registry.get_sample_value("rest_client_request_duration_seconds_count", took) == 3


async def test_a_request_without_an_answer_counts_as_an_error() -> None:
    registry = CollectorRegistry()
    access = ClusterAccess("http://127.0.0.1:9")
    async with KubeClient(access, user_agent="test", measured=RequestMetrics(registry)) as client:
        with pytest.raises(ApiUnreachable):
            await client.get(PODS)
    assert counted(registry) == {("GET", "<error>", "127.0.0.1:9"): 1}
