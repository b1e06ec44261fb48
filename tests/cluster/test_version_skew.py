"""Our nodes with an API server of the previous minor version: `up --kubernetes 1.36`, built first. Run by hand.

`pytest -m soak tests/cluster/test_version_skew.py`. What nodes ask the API server is read from its audit log.
That lists come as the first events of watches is in tests/netns/test_streaming_lists.py: here daemons begin before they
have their rights, and whose watch was refused lists once, as upstream's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from controlplane.cluster.model import Cluster
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import ApiError, KubeClient
from nodelib.version import KUBERNETES_VERSION
from tests.builders.pods import AGNHOST, manifest, sleeper, web
from tests.builders.services import WEB_PORT, service
from tests.cluster import api_audit
from tests.cluster.api_audit import Asked
from tests.cluster.command_line import STATE, cli
from tests.cluster.world import World, holds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]

BUNDLES = "/apis/certificates.k8s.io/v1/clustertrustbundles"
CLUSTER = """
apiVersion: nodewright.io/v1alpha1
kind: Cluster
kubernetes: "1.36"
networking: {uplink: false}
"""
DAEMONS = {"nodewright-agent", "nodewright-proxy", "nodewright-policy"}


@contextlib.contextmanager
def raised(name: str, folder: Path, more: str = "") -> Iterator[Cluster]:
    (folder / "cluster.yaml").write_text(CLUSTER + api_audit.arguments(folder) + more)
    cli("down", "--name", name, "--plain")
    cli("up", "--name", name, "--config", str(folder / "cluster.yaml"), "--plain", timeout=2400)
    try:
        yield Cluster.from_json(json.loads((STATE / name / "cluster.json").read_text()), str(STATE))
    finally:
        cli("down", "--name", name, "--plain")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("skew")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Cluster]:
    with raised("tskew", folder) as cluster:
        yield cluster


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[World]:
    api = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-tests")
    yield World(cluster, api, "default", [])
    await api.close()


async def everything_is_listed(folder: Path, *, streamed: bool) -> None:
    """Until each daemon has asked for its pods, Services or policies, all of one kind in one way."""

    async def listed() -> bool:
        first = [one for one in api_audit.asked(folder) if one.streams or one.verb == "list"]
        found = {one.program for one in first if (one.streams, one.code) == (streamed, 200)}
        return found >= DAEMONS

    await holds(listed, f"the daemons list their collections, streamed: {streamed}")


async def test_the_skew_is_said_in_the_log_as_an_event_and_in_status(world: World) -> None:
    server = (await world.api.get("/version"))["gitVersion"]
    assert server.startswith("v1.36.")
    words = f"{KUBERNETES_VERSION} is newer than the API server, {server}"
    for node in world.cluster.nodes:
        starts = world.agent_log(node.name).count("is registered")
        assert world.agent_log(node.name).count(f"version skew: {words}") == starts, "once for each start"
        event = await world.event(node.name, "VersionSkew", f"kubelet {words}")
        assert event["type"] == "Warning"
        proxy = (STATE / world.cluster.name / node.name / "log/proxy.log").read_text()
        assert f"version skew: {words}" in proxy
    shown = cli("status", "--name", world.cluster.name).stdout
    assert shown.count(f"version skew: kubelet {words}") == 1, shown


async def test_a_volume_of_an_api_that_is_not_served_holds_nobody_up(world: World) -> None:
    """The API server drops the source of a feature that it has not switched on."""
    with pytest.raises(ApiError, match="does not serve that"):
        await world.api.get(BUNDLES)
    source = {"clusterTrustBundle": {"name": "example", "path": "ca.pem", "optional": False}}
    mounted = sleeper(volumeMounts=[{"name": "trust", "mountPath": "/trust"}])
    body = manifest("without-bundles", mounted, volumes=[{"name": "trust", "projected": {"sources": [source]}}])
    try:
        made = await world.run(body)
        kept = made["spec"]["volumes"][0]["projected"]
        assert "clusterTrustBundle" not in json.dumps(kept)
        assert (await world.shell("without-bundles", "ls /trust")).strip() == ""
    finally:
        await world.delete("without-bundles", grace=0)
        await world.gone("without-bundles")


async def test_what_the_server_does_not_have_is_asked_for_by_nobody(world: World, folder: Path) -> None:
    """Whatever a daemon watches or writes is served: 404 is only an object that is not there (yet)."""
    await everything_is_listed(folder, streamed=True)
    of_daemons = {one for one in api_audit.asked(folder) if one.program in DAEMONS and one.code != 403}
    refused = {one for one in of_daemons if one.code >= 400}
    assert sorted(f"{one.verb} {one.path}: {one.code}" for one in refused if one.code not in (404, 409)) == []
    assert sorted(one.path for one in refused if one.verb in ("list", "watch")) == []


async def test_services_answer_and_policies_hold(world: World) -> None:
    """From a pod of one node to a pod of the other, by the Service's name."""
    await world.create(service("skewed", selector={"app": "skewed"}, ports=[WEB_PORT]))
    policies = world.path("networkpolicies")
    try:
        await asyncio.gather(
            world.run(manifest("server", web(), labels={"app": "skewed"}, nodeName="node2")),
            world.run(manifest("client", sleeper(image=AGNHOST), nodeName="node1")),
        )
        ask = "curl -s -m 2 http://skewed/hostname || true"

        async def answers() -> bool:
            return await world.shell("client", ask) == "server"

        async def refused() -> bool:
            return await world.shell("client", ask) == ""

        await holds(answers, "the Service answers")
        spec = {"podSelector": {"matchLabels": {"app": "skewed"}}, "policyTypes": ["Ingress"]}
        await world.api.post(policies, {"metadata": {"name": "closed"}, "spec": spec})
        await holds(refused, "the policy closes it")
        await world.api.delete(f"{policies}/closed")
        await holds(answers, "it answers again")
    finally:
        await world.delete("skewed", "services")
        for name in ("server", "client"):
            await world.delete(name, grace=0)
            await world.gone(name)


async def test_statuses_are_written_once(world: World) -> None:
    """A field that the older server does not know or does not change is not sent again and again."""
    made = await world.run(manifest("quiet"))
    version = made["metadata"]["resourceVersion"]

    async def settled() -> bool:
        nonlocal version
        last, version = version, (await world.get("quiet"))["metadata"]["resourceVersion"]
        return bool(last == version)

    try:
        await holds(settled, "the pod's object does not change any more")
        for node in world.cluster.nodes:
            assert "the API server keeps its own" not in world.agent_log(node.name)
    finally:
        await world.delete("quiet", grace=0)
        await world.gone("quiet")


async def test_without_watch_list_everything_is_listed_in_pages(tmp_path: Path) -> None:
    """An API server that refuses to begin a watch with what there is: each collection is listed, then watched."""
    with raised("tpages", tmp_path, "nodes: 1\nfeatureGates: {WatchList: false}\n") as cluster:
        async with KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-tests") as api:
            world = World(cluster, api, "default", [])
            await everything_is_listed(tmp_path, streamed=False)
            await world.run(manifest("paged"))
            found = api_audit.asked(tmp_path)
            assert {one for one in found if one.streams and one.code == 200} == set()
            agents = {one.path for one in found if one.program == "nodewright-agent" and one.streams}
            assert {one.path for one in found if _lists(one) and one.program == "nodewright-agent"} >= agents
            assert "listed in pages: " in world.agent_log("node1")


def _lists(one: Asked) -> bool:
    return one.verb == "list" and one.code == 200
