"""The policy daemon as a process, in a node's network namespace: real packets become drops, events and metrics."""

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

from cli.policies import sources
from cni.edge.netns import in_namespace
from nodelib.json_values import Json
from nodelib.kube.definition import CRDS
from policy.drops.plan.document import reported_drops
from policy.watches.cluster_policies import POLICIES as CLUSTER_POLICIES
from tests.builders.policies import policy
from tests.fakes.apiserver import FakeApiServer
from tests.netns.policy_world import PolicyWorld
from tests.netns.test_policy_packets import ONE, PODS, SPACES
from tests.netns.test_proxy_packets import POD1, POD2
from tests.unit.policy.watches.test_cluster_intake import CRD
from tests.waiting import until

pytestmark = pytest.mark.netns

_ROOT = Path(__file__).resolve().parents[2]
_POLICIES = "/apis/networking.k8s.io/v1/networkpolicies"  # the fake has no other way to list all namespaces
_METRICS = "import urllib.request;print(urllib.request.urlopen('http://127.0.0.1:10246/metrics').read().decode())"
_KNOCK = """import socket, sys
for port in map(int, sys.argv[2:]):
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", (sys.argv[1], port))
"""


@pytest.fixture(scope="module")
def world() -> Iterator[PolicyWorld]:
    one = PolicyWorld()
    yield one
    one.close()


@asynccontextmanager
async def daemon(
    world: PolicyWorld, folder: Path, *policies: Json, cluster: Sequence[Json] = (), more: Sequence[str] = ()
) -> AsyncIterator[tuple[FakeApiServer, str]]:
    """A daemon of node1, in the place of one that was killed, and is killed at the end; its API server, and its socket.

    `cluster`: ClusterNetworkPolicies, which the API server has only if there are any; `more`: flags.
    """
    api, path = FakeApiServer(), str(folder / "policy.sock")
    with open(f"/proc/{world.node.pid}/ns/net") as file:
        listener = in_namespace(file.fileno(), lambda: socket.create_server(("127.0.0.1", 0)))
    await api.serve(listener)
    for name, labels in SPACES.items():
        await api.put(f"/api/v1/namespaces/{name}", {"metadata": {"name": name, "labels": labels}})
    for one in PODS:
        await api.put(f"/api/v1/pods/{one['metadata']['name']}", one)
    for one in policies:
        await api.put(f"{_POLICIES}/{one['metadata']['name']}", one)
    if cluster:
        await api.put(f"{CRDS}/{CRD['metadata']['name']}", CRD)
    for one in cluster:
        await api.put(f"{CLUSTER_POLICIES}/{one['metadata']['name']}", one)
    config = folder / "kubeconfig"
    clusters = [{"name": "a", "cluster": {"server": api.url}}]
    contexts = [{"name": "a", "context": {"cluster": "a", "user": "a"}}]
    users = [{"name": "a", "user": {}}]
    wanted = {"clusters": clusters, "users": users, "contexts": contexts, "current-context": "a"}
    config.write_text(yaml.safe_dump(wanted))
    flags = [f"--kubeconfig={config}", "--hostname-override=node1", f"--socket={path}"]
    flags += [f"--state-file={folder}/held.json", f"--cni-conf-dir={folder}", *more]
    log = open(folder / "log", "ab")  # noqa: SIM115
    process = world.node.start(sys.executable, "-m", "policy", *flags, cwd=_ROOT, stdout=log, stderr=log)
    try:

        async def listens() -> bool:
            assert process.poll() is None, (folder / "log").read_text()
            answer, _ = await sources.drops(path)
            return answer is not None and not answer["problem"]

        await until(listens)
        await until(lambda: "are in force" in (folder / "log").read_text())
        yield api, path
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        log.close()
        await api.__aexit__()


def knock(world: PolicyWorld, *ports: int) -> None:
    world.pods[POD2].run(sys.executable, "-S", "-c", _KNOCK, POD1, *map(str, ports))


def events(api: FakeApiServer, reason: str) -> list[Json]:
    return [one for path, one in api.objects.items() if "/events/" in path and one["reason"] == reason]


def metric(world: PolicyWorld, name: str) -> float:
    text = world.node.run(sys.executable, "-S", "-c", _METRICS).stdout
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))


async def test_a_refused_packet_is_a_drop_an_event_and_a_number(world: PolicyWorld, tmp_path: Path) -> None:
    async with daemon(world, tmp_path, policy("deny", select=ONE)) as (api, path):
        await asyncio.to_thread(knock, world, *[53] * 100, 54)

        async def is_reported() -> object:
            answer, _ = await sources.drops(path)
            return answer and any(one.port == 53 for one in reported_drops(answer))

        await until(is_reported)
        (event,) = await until(lambda: events(api, "NetworkPolicyDropped"))
        assert event["regarding"] | {"uid": "uid-two", "name": "two", "kind": "Pod"} == event["regarding"]
        assert "pod one (10.244.0.11) port 53/UDP are refused: NetworkPolicy a/deny isolates" in event["note"]
        refused = 'nodewright_policy_refused_packets_total{direction="ingress",namespace="a",policy="deny"}'
        assert await asyncio.to_thread(metric, world, refused) == 101, "all of them, reported or not"
        assert 0 < await asyncio.to_thread(metric, world, "nodewright_policy_drop_reports_total") < 101
        await api.remove(f"{_POLICIES}/deny")

        async def forgotten() -> bool:
            return await asyncio.to_thread(metric, world, refused) == 0

        await until(forgotten)


async def test_a_daemon_keeps_tagged_frames_from_pods(world: PolicyWorld, tmp_path: Path) -> None:
    async with daemon(world, tmp_path):
        assert "ether type !=" in world.node.run("nft", "list", "table", "bridge", "nodewright-policy").stdout
    world.node.run(sys.executable, "-m", "policy", "--cleanup", cwd=_ROOT)
    assert "nodewright-policy" not in world.node.run("nft", "list", "tables").stdout


async def test_a_killed_daemon_reports_again_after_its_start(world: PolicyWorld, tmp_path: Path) -> None:
    for number in (1, 2):
        async with daemon(world, tmp_path, policy("deny", select=ONE)) as (_, path):
            await asyncio.to_thread(knock, world, number)

            async def ports(number: int = number, path: str = path) -> list[int]:
                answer, _ = await sources.drops(path)
                return [one.port for one in reported_drops(answer or {})]

            assert await until(ports) == [number]
        os.unlink(path)


async def test_what_was_left_out_is_told_on_the_policy_and_on_the_pod(world: PolicyWorld, tmp_path: Path) -> None:
    wrong = policy("wrong", select=ONE, ingress=[{"from": [{"ipBlock": {"cidr": "10.0.0.0/99"}}]}])
    async with daemon(world, tmp_path, wrong) as (api, _):
        (of_policy,) = await until(lambda: events(api, "PartNotUnderstood"))
        (of_pod,) = await until(lambda: events(api, "NetworkPolicyPartNotUnderstood"))
    assert of_policy["regarding"]["apiVersion"] == "networking.k8s.io/v1" and of_pod["regarding"]["name"] == "one"
    assert "spec.ingress[0].from[0]" in of_policy["note"] and "spec.ingress[0].from[0]" in of_pod["note"]
