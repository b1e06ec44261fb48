"""`nodewright view`: serves the live page of a cluster on loopback, until it is interrupted."""

from __future__ import annotations

import asyncio
import sys

from cli.clusters import find, kubeconfig_of, refuse_if_stopped
from cli.commands.view.answers import ClusterAnswers
from cli.display.quiet import is_quiet, note
from cli.why.wording import Wording
from controlplane.cluster.edge import state
from controlplane.cluster.model import DEFAULT_NAME
from nodelib.daemons import log, memory
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import KubeClient
from view.app import serve


def run(name: str, *, kubeconfig: str, port: int) -> None:
    """Raises NotFound without a cluster and without a kubeconfig, Temporary when the port is taken."""
    # Whose kubeconfig is given may be another cluster's, or have fewer rights than that of a cluster of this machine.
    cluster = None if kubeconfig else state.load(name)
    path = kubeconfig or kubeconfig_of(cluster)
    if not path or (cluster is None and not kubeconfig and name != DEFAULT_NAME):
        path = find(name).admin_kubeconfig
    if cluster is not None:
        refuse_if_stopped(cluster)
    access = load_kubeconfig(path)
    log.setup(log.LogOptions(), "view")
    memory.settle_allocator()

    def ready(address: str) -> None:
        print(f"Open {address}")
        note("The address has a secret: whoever knows it sees the cluster. Ctrl-C ends it.")
        sys.stdout.flush()

    async def work() -> None:
        async with KubeClient(access, user_agent="nodewright-view", timeout=10) as client:
            wording = Wording(cluster.name if cluster is not None else "", kubeconfig)
            answers = ClusterAnswers(cluster, client, kubeconfig, wording)
            title = cluster.name if cluster is not None else access.server
            await serve(access, answers, title, port=port, ready=ready)

    asyncio.run(work())
    if not is_quiet():
        print("ended", file=sys.stderr)
