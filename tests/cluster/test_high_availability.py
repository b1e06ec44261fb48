"""Three control planes behind one address: the outage that a killed part or node causes, as a table. Slow: run by hand.

`pytest tests/cluster/test_high_availability.py -m soak` raises its own cluster. Every acknowledged write must
still be there.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from controlplane.cluster.model import BALANCER, Cluster
from controlplane.machine.edge import cgroups
from nodelib.errors import NodewrightError
from nodelib.kube.access import load_kubeconfig
from nodelib.kube.client import ApiError, KubeClient
from nodelib.tasks import cancel_and_wait
from tests.cluster.command_line import lent_or_raised

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.soak,
    pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root"),
]

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"
PAUSE = "registry.k8s.io/pause:3.10.2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    words = ("--kubeadm", "--nodes", "4", "--control-planes", "3", "--no-uplink", "--no-demo")
    with lent_or_raised("NODEWRIGHT_HA_CLUSTER", "tha", *words, timeout=1200) as cluster:
        yield cluster


@dataclass
class Writer:
    """Writes one object after the other through the shared address; remembers what was acknowledged, and when."""

    cluster: Cluster
    acknowledged: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    async def run(self) -> None:
        client = KubeClient(load_kubeconfig(self.cluster.admin_kubeconfig), user_agent="writer", timeout=2)
        number = 0
        try:
            while True:
                name = f"w-{time.time_ns()}-{number}"
                await self._write(client, name)
                number += 1
        finally:
            await client.close()

    async def _write(self, client: KubeClient, name: str) -> None:
        while True:
            try:
                await client.post(MAPS, {"metadata": {"name": name, "labels": {"w": "1"}}})
                break
            except ApiError as error:
                if error.is_already_exists:
                    break
            except NodewrightError:
                await client.reconnect()
            await asyncio.sleep(0.02)
        self.acknowledged.append(name)
        self.times.append(time.monotonic())

    def gap_after(self, moment: float) -> float:
        """The longest time without an acknowledged write from `moment` on."""
        seen = [moment, *(at for at in self.times if at >= moment)]
        return max(later - earlier for earlier, later in itertools.pairwise(seen))


def pids(path: str) -> list[int]:
    """Every process below a cgroup of the cluster."""
    return sorted(cgroups.members(cgroups.hierarchies(), path))


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def kill(cluster: Cluster, node: str, program: str) -> int:
    """SIGKILL a component of a node ("" is everything, its supervisor included). Returns how many died."""
    found = [pid for pid in pids(f"{cluster.cgroup}/{node}") if not program or is_of(command_of(pid), program)]
    for pid in found:
        with contextlib.suppress(ProcessLookupError):  # ended with the node's process 1
            os.kill(pid, signal.SIGKILL)
    return len(found)


def is_of(command: str, program: str) -> bool:
    """Whether it is a separate program or a module that Python runs."""
    words = command.split(" ")
    return words[0].endswith(program) or program in words[1:4]


def stop(cluster: Cluster, node: str) -> Callable[[], None]:
    """SIGSTOP the API server of a node: its kernel goes on answering. Returns a function that undoes it."""
    found = [pid for pid in pids(f"{cluster.cgroup}/{node}") if is_of(command_of(pid), "kube-apiserver")]
    assert found, f"no kube-apiserver on {node}"
    for pid in found:
        os.kill(pid, signal.SIGSTOP)

    def undo() -> None:
        for pid in found:
            with contextlib.suppress(ProcessLookupError):  # its liveness probe may have ended it
                os.kill(pid, signal.SIGCONT)

    return undo


def cut_off(cluster: Cluster, node: str) -> Callable[[], None]:
    """Every packet to and from a node is lost without an error. Returns a function that undoes it."""
    ways = {"input": "iifname", "output": "oifname"}
    chains = (
        f"chain {hook} {{ type filter hook {hook} priority -300; {way} != lo drop; }}" for hook, way in ways.items()
    )

    def nft(rules: str) -> None:
        enter = ["nsenter", f"--net={cluster.namespace(node, 'net')}", "nft", "-f", "-"]
        subprocess.run(enter, input=rules, text=True, check=True, timeout=20)

    nft("table inet silence {\n" + "\n".join(chains) + "\n}\n")
    return lambda: nft("delete table inet silence")


async def scheduled(client: KubeClient, name: str, node_not: str) -> float:
    """Seconds until a new pod runs."""
    began = time.monotonic()
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": PAUSE}], "terminationGracePeriodSeconds": 0}
    spec["nodeSelector"] = {"kubernetes.io/hostname": node_not}
    while True:
        try:
            await client.post(PODS, {"metadata": {"name": name}, "spec": spec})
            break
        except ApiError as error:
            if error.is_already_exists:
                break
        except NodewrightError:
            await client.reconnect()
        await asyncio.sleep(0.1)
    while time.monotonic() - began < 120:
        try:
            pod = await client.get(f"{PODS}/{name}")
            if pod["status"].get("phase") == "Running":
                return time.monotonic() - began
        except NodewrightError:
            await client.reconnect()
        await asyncio.sleep(0.1)
    raise AssertionError(f"{name} does not run after 120 s")


async def heartbeat(client: KubeClient, node: str, after: float) -> float:
    """Seconds from `after` (wall clock) until the node's Lease is renewed."""
    while time.time() - after < 120:
        try:
            lease = await client.get(f"{LEASES}/kube-node-lease/leases/{node}")
            stamp = str(lease["spec"]["renewTime"])[:26].rstrip("Z")
            renewed = time.mktime(time.strptime(stamp[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
            if renewed > after:
                return time.time() - after
        except NodewrightError:
            await client.reconnect()
        await asyncio.sleep(0.2)
    raise AssertionError(f"no heartbeat of {node} for 120 s")


TARGETS: list[tuple[str, Callable[[Cluster], tuple[str, str]]]] = [
    ("kube-apiserver of node1", lambda c: ("node1", "kube-apiserver")),
    ("etcd of node2", lambda c: ("node2", "etcd")),
    ("kube-scheduler of every node", lambda c: ("*", "kube-scheduler")),
    ("kube-controller-manager of every node", lambda c: ("*", "kube-controller-manager")),
    ("the balancer in front of the API servers", lambda c: (BALANCER, "controlplane.kubeadm.balancer")),
    ("node1 with everything on it", lambda c: ("node1", "")),
]


SILENCES: list[tuple[str, Callable[[Cluster, str], Callable[[], None]]]] = [
    ("kube-apiserver of node1 stopped (SIGSTOP)", stop),
    ("every packet of node1 lost", cut_off),
]


async def bystander(client: KubeClient, name: str) -> tuple[Any, ...]:
    """What must not change of a Ready pod while nobody touches it: its container, restarts, when it became Ready."""
    deadline = time.monotonic() + 60
    while True:
        try:
            status = (await client.get(f"{PODS}/{name}"))["status"]
            ready: dict[str, Any] = next((one for one in status.get("conditions") or [] if one["type"] == "Ready"), {})
            if ready.get("status") == "True":
                return [(one["containerID"], one["restartCount"]) for one in status["containerStatuses"]], ready
        except NodewrightError:
            await client.reconnect()
        assert time.monotonic() < deadline, f"{name} is not Ready"
        await asyncio.sleep(0.2)


async def test_a_silent_control_plane_costs_seconds(cluster: Cluster, stats: list[tuple[str, str]]) -> None:
    """Nothing is refused or reset: the worker's agent must notice the silence and connect to another API server."""
    writer = Writer(cluster)
    task = asyncio.create_task(writer.run())
    client = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="reader", timeout=3)
    worker = cluster.nodes[-1].name
    try:
        await scheduled(client, "bystander-of-silence", worker)
        before = await bystander(client, "bystander-of-silence")
        await asyncio.sleep(3)
        for index, (what, silence) in enumerate(SILENCES):
            wall, moment = time.time(), time.monotonic()
            undo = silence(cluster, "node1")
            try:
                beat = await heartbeat(client, worker, wall)
                runs = await scheduled(client, f"silent-{index}-{int(wall)}", worker)
                await asyncio.sleep(5)
                gap = writer.gap_after(moment)
            finally:
                undo()
            stats.append((what, f"writes {gap:.1f} s, schedule {runs:.1f} s, lease {beat:.1f} s"))
            await asyncio.sleep(20)  # etcd's member has caught up before the next
    finally:
        await cancel_and_wait(task)
    listed = await client.get(MAPS, {"labelSelector": "w=1"})
    assert await bystander(client, "bystander-of-silence") == before
    await client.close()
    assert not set(writer.acknowledged) - {item["metadata"]["name"] for item in listed["items"]}


async def test_kill_table(cluster: Cluster, stats: list[tuple[str, str]]) -> None:
    writer = Writer(cluster)
    task = asyncio.create_task(writer.run())
    client = KubeClient(load_kubeconfig(cluster.admin_kubeconfig), user_agent="reader", timeout=3)
    worker = cluster.nodes[-1].name
    try:
        await scheduled(client, "bystander-of-kills", worker)
        before = await bystander(client, "bystander-of-kills")
        await asyncio.sleep(3)
        for index, (what, where) in enumerate(TARGETS):
            node, program = where(cluster)
            names = [one.name for one in cluster.nodes[:3]] if node == "*" else [node]
            wall, moment = time.time(), time.monotonic()
            died = sum(kill(cluster, name, program) for name in names)
            assert died, f"{what}: nothing to kill"
            beat = await heartbeat(client, worker, wall)
            runs = await scheduled(client, f"after-{index}-{int(wall)}", worker)
            await asyncio.sleep(2)
            gap = writer.gap_after(moment)
            stats.append((f"{what} killed ({died})", f"writes {gap:.1f} s, schedule {runs:.1f} s, lease {beat:.1f} s"))
            if program:
                await asyncio.sleep(15)  # what was killed is started again before the next falls
    finally:
        await cancel_and_wait(task)
    listed = await client.get(MAPS, {"labelSelector": "w=1"})
    assert await bystander(client, "bystander-of-kills") == before
    await client.close()
    lost = set(writer.acknowledged) - {item["metadata"]["name"] for item in listed["items"]}
    stats.append(("acknowledged writes", f"{len(writer.acknowledged)}, lost {len(lost)}"))
    assert not lost
