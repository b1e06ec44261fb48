"""The podresources API: both of its versions on one real socket, and its time."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from agent.common.metrics import exposition
from agent.common.model.errors import PluginError
from agent.devices.edge.pod_resources import PodResourcesServer
from agent.devices.edge.pod_resources_metrics import PodResourcesMetrics
from agent.devices.model.devices import AllocationKey, DeviceAllocation
from agent.devices.plan.pod_resources import pod_resources
from agent.devices.work.pod_resources import PodResources
from agent.plugins.edge.apis import POD_RESOURCES, POD_RESOURCES_ALPHA
from agent.plugins.edge.rate_limit import TokenBucket
from agent.plugins.edge.rpc import PluginClient
from nodelib.errors import NodewrightError, NotFound
from nodelib.tasks import cancel_and_wait
from tests.builders.pods import container, pod
from tests.fakes.agent_view import FakeView
from tests.fakes.clock import FakeClock
from tests.waiting import until

_DEVICE = {"resource_name": "example.com/gpu", "device_ids": ["a", "b"], "topology": {"nodes": [{"ID": 1}]}}
_POD = {
    "name": "web",
    "namespace": "ns",
    "containers": [{"name": "main", "devices": [_DEVICE], "dynamic_resources": [], "cpu_ids": [3]}],
}


async def _list(request: dict[str, Any]) -> dict[str, Any]:
    return {"pod_resources": [_POD]}


async def _get(request: dict[str, Any]) -> dict[str, Any]:
    raise NotFound("no such pod")


async def test_each_version_answers_with_its_own_fields(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    registry = CollectorRegistry()
    methods = {"List": _list, "Get": _get}
    server = PodResourcesServer(str(socket), methods, PodResourcesMetrics(registry), monotonic=lambda: 0.0)
    serving = asyncio.create_task(server.run())
    await until(socket.exists)
    new = PluginClient(POD_RESOURCES, "podresources", str(socket))
    old = PluginClient(POD_RESOURCES_ALPHA, "podresources", str(socket))
    try:
        (pod,) = (await new.call("PodResourcesLister.List", {}, timeout=10))["pod_resources"]
        assert pod["containers"][0]["cpu_ids"] == [3]
        (pod,) = (await old.call("PodResourcesLister.List", {}, timeout=10))["pod_resources"]
        device = {"resource_name": "example.com/gpu", "device_ids": ["a", "b"]}
        assert pod == {
            "name": "web",
            "namespace": "ns",
            "containers": [{"name": "main", "devices": [device]}],
        }
        with pytest.raises(NodewrightError, match="no such pod"):
            await new.call("PodResourcesLister.Get", {"pod_name": "x"}, timeout=10)
        name = "kubelet_pod_resources_endpoint"
        text = exposition(registry).decode()
        assert f'{name}_requests_total{{server_api_version="v1"}} 2.0' in text
        assert f'{name}_requests_list{{server_api_version="v1alpha1"}} 1.0' in text
        assert f'{name}_requests_get{{server_api_version="v1"}} 1.0' in text
        assert f'{name}_errors_get{{server_api_version="v1"}} 1.0' in text
        assert f"{name}_requests_get_allocatable{{" not in text, "nobody asked"
    finally:
        for client in (new, old):
            await client.close()
        await cancel_and_wait(serving)


async def test_too_many_requests_are_refused_with_upstreams_message(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    registry, now = CollectorRegistry(), [0.0]
    server = PodResourcesServer(str(socket), {"List": _list}, PodResourcesMetrics(registry), monotonic=lambda: now[0])
    serving = asyncio.create_task(server.run())
    await until(socket.exists)
    new = PluginClient(POD_RESOURCES, "podresources", str(socket))
    old = PluginClient(POD_RESOURCES_ALPHA, "podresources", str(socket))
    try:
        for client in (new, old) * 5:
            await client.call("PodResourcesLister.List", {}, timeout=10)
        with pytest.raises(PluginError) as refused:
            await new.call("PodResourcesLister.List", {}, timeout=10)
        assert (refused.value.code, refused.value.message) == ("RESOURCE_EXHAUSTED", "rejected by rate limit")
        now[0] = 0.0101  # a token comes every 10 ms
        await new.call("PodResourcesLister.List", {}, timeout=10)
        with pytest.raises(PluginError, match="rate limit"):
            await old.call("PodResourcesLister.List", {}, timeout=10)
        text = exposition(registry).decode()
        assert 'kubelet_pod_resources_endpoint_requests_total{server_api_version="v1"} 6.0' in text
    finally:
        for client in (new, old):
            await client.close()
        await cancel_and_wait(serving)


def test_the_bucket_never_exceeds_its_burst() -> None:
    now = [0.0]
    bucket = TokenBucket(100, 10, lambda: now[0])
    now[0] = 3600.0
    assert [bucket.take() for _ in range(12)] == [True] * 10 + [False] * 2


def test_a_pod_of_very_many_containers_on_a_node_with_devices() -> None:
    """All devices of the node were put in order for each container: 4 s of the event loop for each List."""
    keys = (AllocationKey(f"u{number}", "main", "example.com/gpu") for number in range(100))
    held = {key: DeviceAllocation(frozenset([key.uid]), numa={-1: (key.uid,)}) for key in keys}
    held[AllocationKey("many", "c7", "example.com/gpu")] = DeviceAllocation(frozenset("a"), numa={-1: ("a",)})
    who = pod(*(container(f"c{number}") for number in range(5000)), meta={"uid": "many"})
    began = time.process_time()
    found = pod_resources(who, held)["containers"]
    assert time.process_time() - began < 0.4
    assert [one["name"] for one in found if one["devices"]] == ["c7"]


class _Nothing:
    def __getattr__(self, name: str) -> dict[str, Any]:
        return {}


@pytest.mark.parametrize("listed", [True, False], ids=["pods are listed", "the API server is away"])
async def test_just_after_a_start_an_answer_waits_for_the_pods(listed: bool) -> None:
    """A monitoring agent would take an empty list for a node without devices."""
    view, clock, known = FakeView(), FakeClock(), asyncio.Event()
    answers = PodResources(view, _Nothing(), _Nothing(), _Nothing(), known, clock)  # type: ignore[arg-type]
    asked = asyncio.create_task(answers.list({}))
    await until(lambda: clock.sleeping == 1)
    assert not asked.done()
    if listed:
        view.by_uid["u1"] = pod(container(), uid="u1")
        known.set()
    else:
        await clock.advance(5)
    assert len((await asked)["pod_resources"]) == listed
    assert len((await answers.list({}))["pod_resources"]) == listed
