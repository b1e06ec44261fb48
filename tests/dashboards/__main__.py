"""`python -m tests.dashboards [CLUSTER ...]`: measure running clusters of one node, and write docs/metrics.md.

Without a cluster, only the page is made again. One cluster has our daemons, the other upstream's:

    ./nodewright up --name ours --nodes 1 --no-demo
    ./nodewright up --name theirs --nodes 1 --no-demo --agent upstream --proxy upstream
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from controlplane.cluster.model import Cluster
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from tests.cluster.command_line import STATE
from tests.cluster.world import World
from tests.dashboards import facts
from tests.dashboards.measure import Measured, is_of_ours, measure
from tests.dashboards.page import PAGE, page
from tests.dashboards.queries import QUERIES

_NAMESPACE = "dashboards"


async def measured(cluster: Cluster) -> Measured:
    """In a namespace that is removed afterwards."""
    async with KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="nodewright-tests") as api:
        await api.post("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
        try:
            with tempfile.TemporaryDirectory() as folder:
                return await measure(World(cluster, api, _NAMESPACE), Path(folder))
        finally:
            await api.delete(f"/api/v1/namespaces/{_NAMESPACE}")
            await api.delete("/api/v1/persistentvolumes/dashboards")


def main(names: list[str]) -> None:
    for name in names:
        cluster = Cluster.from_json(json.loads((STATE / name / "cluster.json").read_text()), str(STATE))
        found, maker = asyncio.run(measured(cluster)), facts.MAKERS[not is_of_ours(cluster)]
        facts.write(maker, found)
        print(f"{maker}: {len(found.answered)} of {len(QUERIES)} queries give data")
    PAGE.write_text(page(*(facts.read(maker) for maker in facts.MAKERS)))


if __name__ == "__main__":
    main(sys.argv[1:])
