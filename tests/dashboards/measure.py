"""Gives a node something to measure, asks every query until it has data, and lists the metrics of its daemons."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from controlplane.cluster.model import Cluster
from nodelib.json_values import Json
from tests.builders.pods import container, manifest, sleeper, web
from tests.cluster.world import World
from tests.dashboards.prometheus import PATHS, Prometheus, prometheus
from tests.dashboards.queries import QUERIES, Query
from tests.dashboards.series import Series, series_of
from tests.dashboards.state_metrics import state_metrics

_PATIENCE = 150.0  # seconds; what has no data by then is said to have none
_LIMIT = 16 << 20  # bytes of one endpoint
_VOLUME = "/var/lib/kubelet/dashboards"
_PORT = 18081


@dataclass
class Measured:
    """`answered`: queries that gave data; `endpoints`: metrics by endpoint, "kubelet /metrics" and so on."""

    answered: set[Query] = field(default_factory=set)
    endpoints: dict[str, dict[str, Series]] = field(default_factory=dict)


async def measure(world: World, folder: Path, queries: Collection[Query] = QUERIES) -> Measured:
    """In a cluster of one node, whoever made its daemons."""
    found = Measured()
    host = world.cluster.host_address
    async with state_metrics(world.api, host, _PORT) as state, prometheus(world.cluster, folder, more=[state]) as there:
        async with busy(world):
            await _ask_until_answered(there, queries, found)
        found.endpoints = await endpoints(world)
    return found


async def _ask_until_answered(there: Prometheus, queries: Collection[Query], found: Measured) -> None:
    deadline = time.monotonic() + _PATIENCE
    while len(found.answered) < len(queries) and time.monotonic() < deadline:
        for one in queries:
            if one not in found.answered and await there.has_data(one.text):
                found.answered.add(one)
        await asyncio.sleep(2)


async def endpoints(world: World) -> dict[str, dict[str, Series]]:
    """What the daemons of the first node show now."""
    node = world.cluster.nodes[0].name
    found = {}
    for path in PATHS.values():
        text = await world.api.text(f"/api/v1/nodes/{node}/proxy{path}", {}, limit=_LIMIT)
        found[f"kubelet {path}"] = series_of(text)
    shown = await world.in_node(node, "curl", "-s", "-m", "10", "http://127.0.0.1:10249/metrics")
    found["kube-proxy /metrics"] = series_of(shown.text)
    return found


@asynccontextmanager
async def busy(world: World) -> AsyncIterator[None]:
    """Pods that use CPU, disk, network and volumes, two that cannot start, and others that come and go."""
    node = world.cluster.nodes[0].name
    await world.config_map("words", greeting="hello")
    await _volume(world)
    await world.run(_worker(node))
    await world.create(manifest("missing", container(image="registry.invalid/none:1"), nodeName=node))
    await world.create(manifest("broken", container(command=["/no/such/program"]), nodeName=node))
    churn = asyncio.ensure_future(_churn(world, node))
    try:
        yield
    finally:
        churn.cancel()
        await asyncio.wait([churn])


def _worker(node: str) -> Json:
    resources = {"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "128Mi"}}
    script = "while true; do dd if=/dev/zero of=/data/file bs=64k count=8 conv=fsync 2>/dev/null; done"
    probe = {"exec": {"command": ["true"]}, "periodSeconds": 1}
    writer = container(
        "main",
        script=script,
        resources=resources,
        livenessProbe=probe,
        volumeMounts=[{"name": name, "mountPath": f"/{name}"} for name in ("data", "words", "claimed")],
    )
    volumes = [
        {"name": "data", "emptyDir": {}},
        {"name": "words", "configMap": {"name": "words"}},
        {"name": "claimed", "persistentVolumeClaim": {"claimName": "claimed"}},
    ]
    return manifest("worker", writer, web(resources=resources), volumes=volumes, nodeName=node)


async def _volume(world: World) -> None:
    """A claim of a local volume on the node, whose usage is measured."""
    await world.in_node(world.cluster.nodes[0].name, "mkdir", "-p", _VOLUME)
    size, modes = {"storage": "1Mi"}, ["ReadWriteOnce"]
    host = {"key": "kubernetes.io/hostname", "operator": "In", "values": [world.cluster.nodes[0].name]}
    volume = {
        "metadata": {"name": "dashboards"},
        "spec": {
            "capacity": size,
            "accessModes": modes,
            "storageClassName": "",
            "local": {"path": _VOLUME},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [host]}]}},
            "claimRef": {"namespace": world.namespace, "name": "claimed"},
        },
    }
    claim = {"accessModes": modes, "storageClassName": "", "resources": {"requests": size}, "volumeName": "dashboards"}
    await world.api.post("/api/v1/persistentvolumes", {"apiVersion": "v1", "kind": "PersistentVolume", **volume})
    await world.create(
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claimed"}, "spec": claim}
    )
    await world.until(
        "claimed", lambda one: one["status"].get("phase") == "Bound", "Bound", kind="persistentvolumeclaims"
    )


async def _churn(world: World, node: str) -> None:
    """A Service gets and loses an endpoint, again and again."""
    ports = [{"port": 80, "targetPort": 8080}]
    spec = {"selector": {"app": "coming"}, "ports": ports}
    await world.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "coming"}, "spec": spec})
    absent = [{"name": "absent", "configMap": {"name": "absent", "optional": True}}]
    for number in range(1000):
        name = f"coming-{number}"
        one = sleeper(volumeMounts=[{"name": "absent", "mountPath": "/absent"}])
        await world.run(manifest(name, one, labels={"app": "coming"}, volumes=absent, nodeName=node))
        await world.delete(name)
        await world.gone(name)


def is_of_ours(cluster: Cluster) -> bool:
    """Whether the daemons are this project's, and not upstream's."""
    return cluster.options.agent == "nodewright" and cluster.options.proxy == "nodewright"
