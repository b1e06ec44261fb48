"""The proxy and the policy daemon as processes that are told to trace: spans of what the real kernel gets."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml

from cni.edge import policy as question
from cni.edge.netns import in_namespace
from cni.model import Attachment, AttachmentKey
from cni.spec.arguments import Args
from nodelib.addresses import parse_address
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from nodelib.kube.times import format_rfc3339
from nodelib.traces.model import SpanContext
from proxy.plan.slices import TRIGGER_TIME
from tests.builders.policies import policy
from tests.builders.services import endpoint_slice, node, service
from tests.fakes.apiserver import FakeApiServer
from tests.fakes.collector import Collector, collector
from tests.netns import confinement
from tests.netns.policy_world import PolicyWorld
from tests.netns.test_confined_proxy import unit
from tests.netns.test_policy_daemon import daemon
from tests.netns.test_policy_packets import ONE
from tests.netns.test_proxy_packets import POD1
from tests.waiting import until

pytestmark = pytest.mark.netns

_ROOT = Path(__file__).resolve().parents[2]
POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"  # the fake has no other way to list all namespaces
SANDBOX = SpanContext(b"t" * 16, b"s" * 8)
LIMIT = 60.0  # seconds


@pytest.fixture(autouse=True)
def spans_leave_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")


@pytest.fixture(scope="module")
def world() -> Iterator[PolicyWorld]:
    one = PolicyWorld()
    yield one
    one.close()


@asynccontextmanager
async def receiver(folder: Path) -> AsyncIterator[tuple[Collector, list[str]]]:
    """A collector that is reached from every namespace, and the flags that lead to it."""
    endpoint = f"unix:{folder}/otlp.sock"
    async with collector(endpoint) as there:
        yield there, [f"--tracing-endpoint={endpoint}", "--tracing-sampling-rate-per-million=1000000"]


def parts(there: Collector, above: Json) -> dict[str, Json]:
    return {one["name"]: one for one in there.spans if one["parent_span_id"] == above["span_id"]}


async def test_a_policy_and_a_pod_that_waits_for_it(world: PolicyWorld, tmp_path: Path) -> None:
    async with receiver(tmp_path) as (there, flags), daemon(world, tmp_path, more=flags) as (api, path):
        await until(lambda: there.named("sync policies"), LIMIT)  # the first, of everything
        await api.put(f"{POLICIES}/deny", policy("deny", select=ONE))
        await until(lambda: len(there.named("sync policies")) == 2, LIMIT)
        first, second = (one for one in there.named("sync policies"))
        assert [one["attributes"]["nodewright.sync"] for one in (first, second)] == ["full", "partial"]
        assert {"change queued", "plan", "write", "read"} <= set(parts(there, second))
        assert parts(there, second)["write"]["attributes"]["nodewright.tables"] == "nodewright-policy"
        assert second["attributes"]["nodewright.changes"] == 1 and second["attributes"]["nodewright.chains"]
        args = Args("ADD", "c", "eth0", "/n", dict(zip(_ARGS, ("a", "one", "uid-one"), strict=True)))
        added = Attachment(AttachmentKey("c", "eth0"), (parse_address(POD1),))
        await question.protect(path, args, added, SANDBOX.traceparent)
        (wait,) = await until(lambda: there.named("wait for network policies"), LIMIT)
        assert (wait["trace_id"], wait["parent_span_id"]) == (SANDBOX.trace, SANDBOX.span)
        assert set(parts(there, wait)) == {"see the pod in the API", "wait for the sync"}
        assert {one["service.name"] for one in there.resources} == {"nodewright-policy"}


_ARGS = ("K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID")


@asynccontextmanager
async def proxy(
    world: PolicyWorld, folder: Path, mode: str, *flags: str, wrapper: Sequence[str] = ()
) -> AsyncIterator[FakeApiServer]:
    """The proxy of node1 as a process; it is asked to stop at the end."""
    api = FakeApiServer()
    with open(f"/proc/{world.node.pid}/ns/net") as file:
        listener = in_namespace(file.fileno(), lambda: socket.create_server(("127.0.0.1", 0)))
    await api.serve(listener)
    await api.put("/api/v1/nodes/node1", node("node1", cidr="10.244.0.0/24"))
    config = folder / "kubeconfig"
    contexts = [{"name": "a", "context": {"cluster": "a", "user": "a"}}]
    clusters, users = [{"name": "a", "cluster": {"server": api.url}}], [{"name": "a", "user": {}}]
    wanted = {"clusters": clusters, "users": users, "contexts": contexts, "current-context": "a"}
    config.write_text(yaml.safe_dump(wanted))
    more = [f"--proxy-mode={mode}", "--cluster-cidr=10.244.0.0/16", "--conntrack-max-per-core=0", *flags]
    argv = (*wrapper, sys.executable, "-m", "proxy", f"--kubeconfig={config}", "--hostname-override=node1", *more)
    with open(folder / "log", "ab") as log:
        process = world.node.start(*argv, cwd=_ROOT, stdout=log, stderr=log, env={**os.environ})
    try:
        yield api
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
        await api.__aexit__()


@pytest.mark.parametrize("mode", ["iptables", "nftables"])
async def test_a_service_and_its_endpoints_under_the_confinement_of_the_unit(
    world: PolicyWorld, tmp_path: Path, mode: str
) -> None:
    confined = (sys.executable, confinement.__file__, unit(tmp_path, "nodewright-proxy.service"))
    wrapper = confined if confinement.header().exists() else ()
    async with receiver(tmp_path) as (there, flags):
        async with proxy(
            world, tmp_path, mode, *flags, wrapper=wrapper if confinement.header().exists() else ()
        ) as api:
            await until(lambda: there.named("syncProxyRules"), LIMIT)
            await api.put("/api/v1/services/web", service("web", "10.96.0.80"))
            slices = endpoint_slice("web", [POD1])
            # In whole seconds, and later than the start of the proxy.
            slices["metadata"]["annotations"] = {TRIGGER_TIME: format_rfc3339(SystemClock().now() + 1)}
            await api.put("/apis/discovery.k8s.io/v1/endpointslices/web-1", slices)
            await until(lambda: there.named("network programming"), LIMIT)
        first, *later = there.named("syncProxyRules")
        assert first["attributes"]["nodewright.sync"] == "full"
        changed = [one for one in later if one["attributes"]["nodewright.services.names"] == "ns/web"]
        assert changed and all({"change queued", "plan", "write"} <= set(parts(there, one)) for one in changed)
        assert there.named("network programming")[0]["attributes"]["k8s.service.name"] == "web"
        assert {one["service.name"] for one in there.resources} == {"kube-proxy"}
