"""A node's agent, or its service proxy, with a broken API server for the time of a test."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from nodelib.kube.access import ClusterAccess, render_kubeconfig
from tests.cluster.faults.api_edge import ApiProxy
from tests.cluster.faults.promises import Site
from tests.cluster.faulty_runtime import agent_changed
from tests.cluster.node_access import node_access

_KUBECONFIG = "--kubeconfig="
_OTHER = "/etc/kubernetes/faults.conf"  # as the node sees it


@contextlib.asynccontextmanager
async def behind_api_proxy(site: Site) -> AsyncIterator[ApiProxy]:
    """The node's agent talks to its API server through a proxy for the block."""
    folder = Path(site.world.cluster.node_dir(site.node), "kubernetes")
    proxy = ApiProxy(node_access(site.world, site.node, "kubelet.conf"), site.seed)
    url = await proxy.serve(site.world.cluster.host_address)
    other = folder / "faults.conf"
    other.write_text(render_kubeconfig(ClusterAccess(url)))

    def change(agent: dict[str, Any]) -> None:
        agent["argv"] = [_KUBECONFIG + _OTHER if one.startswith(_KUBECONFIG) else one for one in agent["argv"]]

    try:
        async with agent_changed(site.world, site.node, change):
            yield proxy
    finally:
        other.unlink()
        await proxy.close()


@contextlib.asynccontextmanager
async def proxy_behind_api_proxy(site: Site) -> AsyncIterator[ApiProxy]:
    """The node's service proxy talks to its API server through a proxy for the block."""
    folder = Path(site.world.cluster.node_dir(site.node), "kubernetes")
    between = ApiProxy(node_access(site.world, site.node, "proxy.conf"), site.seed)
    other, config = folder / "faults.conf", folder / "proxy.yaml"
    other.write_text(render_kubeconfig(ClusterAccess(await between.serve(site.world.cluster.host_address))))
    before = config.read_text()
    try:
        config.write_text(json.dumps({**json.loads(before), "clientConnection": {"kubeconfig": _OTHER}}))
        await site.world.kill(site.node, "proxy")
        yield between
    finally:
        config.write_text(before)
        await site.world.kill(site.node, "proxy")
        other.unlink()
        await between.close()
