"""Addresses of Services of type LoadBalancer as a test sees them, and nodes that are cut off or killed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

from controlplane.cluster.model import Cluster
from controlplane.machine.edge import process_one
from controlplane.supervisor.edge import units
from loadbalancer.leases import member
from loadbalancer.model import NAMESPACE
from loadbalancer.plan.table import of_lease
from tests.cluster.world import Object, World, holds


def asks(cluster: Cluster, address: str, *, node: str = "", path: str = "hostname", seconds: float = 2) -> str:
    """What the Service answers to this machine or to a node; "" for no answer."""
    enter = ["nsenter", f"--net={cluster.namespace(node, 'net')}"] if node else []
    words = [*enter, "curl", "-s", "-m", str(seconds), f"http://{address}:8080/{path}"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


async def balanced(world: World, name: str, app: str = "", **spec: object) -> str:
    """Create a Service and wait for its address."""
    selector = {"app": app or name}
    full = {"type": "LoadBalancer", "selector": selector, "ports": [{"port": 8080}], **spec}
    await world.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": full})

    def has_address(obj: Object) -> object:
        return obj["status"]["loadBalancer"].get("ingress")

    found = await world.until(name, has_address, "an address", 10, kind="services")
    entry: Object = found["status"]["loadBalancer"]["ingress"][0]
    assert entry["ipMode"] == "VIP"
    return str(entry["ip"])


async def announcer(world: World, address: str) -> str:
    """The node that announces an address, once there is one."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/addresses"

    async def found() -> str:
        rows = of_lease(await world.api.get(path)).rows
        return next((row.node for one, row in rows.items() if str(one) == address), "")

    return str(await holds(found, f"a node announces {address}", 15))


def plug(cluster: Cluster, node: str, *, into: bool) -> None:
    """Put the cable of a node into the switch, or take it out."""
    switch = ["nsenter", f"--net={cluster.namespace('wire', 'net')}"]
    subprocess.run([*switch, "ip", "link", "set", node, "up" if into else "down"], check=True)


async def well_again(world: World, nodes: Iterable[str]) -> None:
    """Every one of these nodes has renewed its Lease twice: before the eyes of the leader it lives then."""
    folder = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"

    async def renewals() -> dict[str, str]:
        items = (await world.api.get(folder))["items"]
        return {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in items}

    for _ in range(2):
        before = await renewals()

        async def all_again(before: dict[str, str] = before) -> bool:
            now = await renewals()
            return all(now.get(member(node)) != before.get(member(node)) for node in nodes)

        await holds(all_again, "all nodes renew their Leases", 60)


def kill_node(cluster: Cluster, node: str) -> None:
    """Kill its process 1, and with it all of its processes."""
    assert process_one.kill(units.machine_lock(cluster.unit_dir(node)))


def forget(address: str) -> None:
    """This machine has to ask again who has the address."""
    subprocess.run(["ip", "neigh", "flush", "to", address], check=False, capture_output=True)
