"""`nodewright view`: serves the live page of a cluster on loopback, until it is interrupted."""

from __future__ import annotations

import asyncio
import sys

from cli.clusters import find
from cli.commands.view_answers import ClusterAnswers
from cli.why.sources import own_kubeconfig
from cli.why.wording import Wording
from controlplane.cluster.edge import state
from nodelib import log, memory
from nodelib.errors import Permanent
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from view.app import serve


def run(name: str, *, kubeconfig: str, port: int) -> None:
    """Raises NotFound without a cluster and without a kubeconfig, Temporary when the port is taken."""
    cluster = state.load(name)
    path = kubeconfig or (cluster.admin_kubeconfig if cluster is not None else own_kubeconfig())
    if not path:
        find(name)
        raise Permanent("there is no kubeconfig on this machine", step="find the API server")
    access = load_kubeconfig(path)
    log.setup(0, "view")
    memory.settle_allocator()

    def ready(address: str) -> None:
        print(
            f"Open {address}\nThe address has a secret: whoever knows it sees the cluster. Ctrl-C ends it.", flush=True
        )

    async def work() -> None:
        async with KubeClient(access, user_agent="nodewright-view", timeout=10) as client:
            wording = Wording(cluster.name if cluster is not None else "", kubeconfig)
            answers = ClusterAnswers(cluster, client, kubeconfig, wording)
            title = cluster.name if cluster is not None else access.server
            await serve(access, answers, title, port=port, ready=ready)

    asyncio.run(work())
    print("ended", file=sys.stderr)
