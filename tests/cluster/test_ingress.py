"""`up --addons ingress`: Traefik routes by host and path to two Services.

Traefik's first build takes ten minutes and more, so this is not part of the usual run: it needs
NODEWRIGHT_TEST_INGRESS=1, or a lent cluster (NODEWRIGHT_TEST_CLUSTER) that has the add-on already.
"""

from __future__ import annotations

import os

import pytest

from controlplane.cluster.model import Cluster
from controlplane.cluster.plan.ingress import CLASS, NODE_PORT
from nodelib.command import run
from tests.builders.pods import manifest, web
from tests.builders.services import WEB_PORT, service
from tests.cluster.command_line import cli
from tests.cluster.world import World, holds, is_ready

_ASKED = bool(os.environ.get("NODEWRIGHT_TEST_INGRESS"))

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]


@pytest.fixture
def with_traefik(shared_cluster: Cluster) -> Cluster:
    if "ingress" not in shared_cluster.options.addon_names:
        if not _ASKED:
            pytest.skip("NODEWRIGHT_TEST_INGRESS=1 builds Traefik and runs this")
        cli("up", "--name", shared_cluster.name, "--addons", "ingress", "--plain", timeout=3600)
    return shared_cluster


def path(where: str, name: str) -> dict[str, object]:
    backend = {"service": {"name": name, "port": {"number": 80}}}
    return {"path": where, "pathType": "Prefix", "backend": backend}


async def asked(cluster: Cluster, host: str, where: str, node: int = 0) -> str:
    """Who answered (a pod's name), or the status code of an error."""
    url = f"http://{cluster.nodes[node].address}:{NODE_PORT}{where}"
    argv = ["curl", "-s", "-m", "5", "-w", " %{http_code}", "-H", f"Host: {host}", url]
    body, _, code = (await run(argv, check=False, timeout=20)).text.rpartition(" ")
    return body if code == "200" else code


async def test_an_ingress_routes_by_host_and_path(world: World, with_traefik: Cluster) -> None:
    for name in ("one", "two"):
        await world.create(manifest(name, web()))
        await world.create(service(name, selector={"app": name}, ports=[WEB_PORT]))
    rules = [
        {"host": "shop.example", "http": {"paths": [path("/hostname", "one"), path("/clientip", "two")]}},
        {"host": "blog.example", "http": {"paths": [path("/", "two")]}},
    ]
    ingress = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {"name": "shop"},
        "spec": {"ingressClassName": CLASS, "rules": rules},
    }
    where = f"/apis/networking.k8s.io/v1/namespaces/{world.namespace}/ingresses"
    await world.api.post(where, ingress)

    async def ready() -> bool:
        return all([is_ready(await world.get(name)) for name in ("one", "two")])

    await holds(ready, "both servers are Ready")

    async def routed() -> bool:
        return await asked(with_traefik, "shop.example", "/hostname") == "one"

    await holds(routed, "the Ingress leads to its Service")
    for node in range(len(with_traefik.nodes)):
        assert await asked(with_traefik, "blog.example", "/hostname", node) == "two"
        assert await asked(with_traefik, "shop.example", "/hostname", node) == "one"
        assert await asked(with_traefik, "shop.example", "/elsewhere", node) == "404"
        assert await asked(with_traefik, "other.example", "/hostname", node) == "404"
    await world.api.delete(f"{where}/shop")

    async def gone() -> bool:
        return await asked(with_traefik, "shop.example", "/hostname") == "404"

    await holds(gone, "the route ends with the Ingress")
