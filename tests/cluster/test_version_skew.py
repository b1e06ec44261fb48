"""Our nodes with an API server of the previous minor version: `up --kubernetes 1.36`, built first. Run by hand.

`pytest -m soak tests/cluster/test_version_skew.py`; NODEWRIGHT_SKEW_CLUSTER names an existing cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator

import pytest

from controlplane.cluster.model import Cluster
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import ApiError, KubeClient
from nodelib.version import KUBERNETES_VERSION
from tests.builders.pods import manifest, sleeper
from tests.cluster.command_line import STATE, cli, lent_or_raised
from tests.cluster.world import World, holds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]

BUNDLES = "/apis/certificates.k8s.io/v1/clustertrustbundles"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    words = ("--kubernetes", "1.36", "--no-uplink")
    with lent_or_raised("NODEWRIGHT_SKEW_CLUSTER", "tskew", *words, timeout=2400) as cluster:
        yield cluster


@pytest.fixture
async def world(cluster: Cluster) -> AsyncIterator[World]:
    api = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-tests")
    yield World(cluster, api, "default", [])
    await api.close()


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
