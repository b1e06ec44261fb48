"""`kubectl top` by upstream's metrics-server, built from its Go module and deployed by `up --addons metrics`."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from controlplane.cluster.edge.roots import cache_root
from tests.builders.pods import container, manifest
from tests.cluster.command_line import cli
from tests.cluster.world import World, holds

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
    pytest.mark.skipif(
        not list(Path(cache_root(), "bin").glob("metrics-server-*/metrics-server")),
        reason="metrics-server is not built yet (minutes): `up --addons metrics` does it",
    ),
]


async def test_top_tells_what_nodes_and_pods_use(world: World) -> None:
    await world.run(manifest("busy", container(script="while :; do :; done", resources={"limits": {"cpu": "100m"}})))
    cli("up", "--name", world.cluster.name, "--addons", "metrics", "--plain", timeout=600)

    async def has_metrics() -> bool:
        nodes = (await world.kubectl("top", "node", "--no-headers")).text
        pods = (await world.kubectl("top", "pod", "--no-headers")).text
        used = re.search(r"^busy\s+(\d+)m\s+\d+Mi", pods, re.MULTILINE)
        assert used is not None and 60 <= int(used[1]) <= 140, pods
        return all(re.search(rf"^{one.name}\s+\d+m\s+\d+%\s+\d+Mi", nodes, re.M) for one in world.cluster.nodes)

    await holds(has_metrics, "kubectl top shows every node and the pod's 100m", 90)
