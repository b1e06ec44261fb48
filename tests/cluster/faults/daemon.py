"""Changes to a node's agent for the time of a test: other arguments, a broken API server, a clock of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from controlplane.supervisor.edge import units
from nodelib.kube.access import ClusterAccess, render_kubeconfig
from tests.cluster.faults import clock_edge
from tests.cluster.faults.api_edge import ApiProxy
from tests.cluster.faults.promises import Site
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
        async with _changed(site, change):
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


@contextlib.asynccontextmanager
async def with_own_clock(site: Site) -> AsyncIterator[Callable[[int], None]]:
    """The node's agent has a wall clock that the yielded function sets (seconds from the machine's)."""

    def change(agent: dict[str, Any]) -> None:
        agent["env"] = {**agent["env"], **clock_edge.environment()}

    clock_edge.step(await site.world.pid_once_running(site.node, "agent"), 0)
    async with _changed(site, change):
        yield lambda seconds: clock_edge.step(site.world.pid(site.node, "agent"), seconds)


@contextlib.asynccontextmanager
async def _changed(site: Site, change: Callable[[dict[str, Any]], None]) -> AsyncIterator[None]:
    path = Path(site.world.cluster.unit_dir(site.node), "spec.json")
    before = path.read_text()
    spec = json.loads(before)
    change(next(one for one in spec["programs"] if one["name"] == "agent"))
    try:
        await _restarted(site, path, json.dumps(spec))
        yield
    finally:
        await _restarted(site, path, before)


async def _restarted(site: Site, path: Path, spec: str) -> None:
    old = await site.world.pid_once_running(site.node, "agent")
    path.write_text(spec)
    os.kill(units.supervisor_pid(str(path.parent)), signal.SIGHUP)
    await site.world.pid_once_running(site.node, "agent", other_than=old)
    await site.world.agent_well(site.node)
