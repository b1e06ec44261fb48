"""What separates the nodes of `up` from each other and from the machine, as pods see it; and a node that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.model import Cluster
from controlplane.machine.edge import process_one
from controlplane.supervisor.edge import units
from nodelib.quantity import value
from tests.builders.pods import AGNHOST, container, manifest
from tests.cluster.command_line import cli, differences, lent_or_raised, network_namespaces, traces
from tests.cluster.world import Object, World, condition, holds, status_of

NAME = "tiso"
_MEMORY = 3 << 30


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """Two small nodes of their own: these tests kill them."""
    before = traces(NAME)
    with lent_or_raised("NODEWRIGHT_TEST_ISOLATION", NAME, "--no-uplink", "--memory=3Gi", timeout=1800) as cluster:
        yield cluster
        spaces = network_namespaces(cluster.name)
    if not os.environ.get("NODEWRIGHT_TEST_ISOLATION"):
        cli("down", "--name", NAME, "--plain")  # a second time
        assert differences(before, traces(NAME)) == {} and spaces


def looker(node: str, **fields: Any) -> Object:
    """A privileged pod in the node's PID namespace that sees the node's file tree as /rootfs: a debugging pod, a CSI
    driver, or the pod that upstream's storage suites run commands through (test/e2e/storage/utils/host_exec.go)."""
    box = container(
        image=AGNHOST,
        command=["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
        securityContext={"privileged": True},
        volumeMounts=[{"name": "rootfs", "mountPath": "/rootfs", "mountPropagation": "HostToContainer"}],
    )
    volume = {"name": "rootfs", "hostPath": {"path": "/"}}
    return manifest(f"look-{node}", box, nodeName=node, hostPID=True, volumes=[volume], **fields)


async def lookers(world: World) -> tuple[str, str]:
    await asyncio.gather(world.run(looker("node1")), world.run(looker("node2")))
    return "look-node1", "look-node2"


async def test_what_a_host_path_writes_stays_on_its_node(world: World) -> None:
    one, two = await lookers(world)
    name = f"nw-{uuid.uuid4().hex}"
    paths = [f"{folder}/{name}" for folder in ("/etc", "/usr/local/bin", "/opt", "/root", "/tmp", "/var/lib", "/run")]
    await world.shell(one, " && ".join(f"echo here > /rootfs{path}" for path in paths))
    assert await world.shell(one, f"cat {' '.join(f'/rootfs{path}' for path in paths)}") == "here\n" * len(paths)
    assert (await world.in_node("node1", "cat", paths[0])).text == "here\n"
    assert [path for path in paths if os.path.exists(path)] == []
    assert await world.shell(two, f"ls {' '.join(f'/rootfs{path}' for path in paths)} 2>/dev/null; true") == ""


async def test_a_pod_in_the_nodes_pids_sees_only_the_node(world: World) -> None:
    one, two = await lookers(world)
    seen = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
    first, second = await asyncio.gather(world.shell(one, seen), world.shell(two, seen))
    assert "init.py" in await world.shell(one, "cat /proc/1/cmdline")
    for text in (first, second):
        assert "kubelet --config" in text and "kube-proxy --config" in text and "containerd" in text
        assert not [word for word in ("etcd", "kube-apiserver", "kube-scheduler", "pytest") if word in text]
    assert "node2" not in first and "node1" not in second


async def test_a_pod_in_the_nodes_pids_finds_its_daemons_by_upstreams_names(world: World) -> None:
    """As upstream's suites do it: in the node's mount namespace, with the node's own tools."""
    (one, _) = await lookers(world)
    for name in ("kubelet", "kube-proxy"):
        for tool in (f"pidof {name}", f"pgrep -x {name}", f"ps -C {name} -o pid="):
            found = await world.shell(one, f"nsenter --mount=/rootfs/proc/1/ns/mnt -- sh -c '{tool}'")
            assert len(found.split()) == 1, tool


async def test_no_secret_of_the_cluster_is_in_reach(world: World, shared_cluster: Cluster) -> None:
    """Only what is the node's own, and nothing of the machine's homes and passwords."""
    for pod, node in zip(await lookers(world), ("node1", "node2"), strict=True):
        folder = f"/rootfs{shared_cluster.dir}"
        assert (await world.shell(pod, f"ls {folder}")).split() == [node]
        assert set((await world.shell(pod, f"ls {folder}/{node}")).split()) == {"commands", "log", "supervisor"}
        assert await world.shell(pod, "ls -d /rootfs/etc/shadow /rootfs/home/* 2>/dev/null; true") == ""
        keys = await world.shell(
            pod, "grep -rlE 'BEGIN (RSA|EC|)[ ]?PRIVATE' /rootfs/etc /rootfs/var/lib/kubelet; true"
        )
        assert not [path for path in keys.split() if "ca.key" in path or "apiserver" in path]
        disks = await world.shell(pod, "find /dev /rootfs/dev -type b | grep -v loop; true")
        assert disks == ""


async def test_the_namespace_of_process_1_is_the_nodes(world: World) -> None:
    """As upstream's storage suites reach the node: nsenter --mount=/rootfs/proc/1/ns/mnt."""
    for pod, node in zip(await lookers(world), ("node1", "node2"), strict=True):
        enter = "nsenter --mount=/rootfs/proc/1/ns/mnt --"
        assert (await world.shell(pod, f"{enter} cat /etc/hostname")).strip() == node
        await world.shell(
            pod, f"{enter} sh -c 'mkdir -p /mnt/made && mount -t tmpfs none /mnt/made && touch /mnt/made/x'"
        )
        assert (await world.in_node(node, "ls", "/mnt/made")).text == "x\n"
        assert not os.path.exists("/mnt/made")
        await world.shell(pod, f"{enter} sh -c 'umount /mnt/made && rmdir /mnt/made'")


async def test_loop_devices_can_be_used(world: World) -> None:
    pod, _ = await lookers(world)
    enter = "nsenter --mount=/rootfs/proc/1/ns/mnt -- sh -c"
    script = (
        "truncate -s 8M /tmp/disk && device=$(losetup -f --show /tmp/disk) && test -b $device && losetup -d $device"
    )
    await world.shell(pod, f"{enter} '{script}'")


async def test_capacity_and_usage_are_the_nodes(world: World) -> None:
    listed = (await world.api.get("/api/v1/nodes"))["items"]
    assert {value(one["status"]["capacity"]["memory"]) for one in listed} == {_MEMORY}
    assert len({one["status"]["nodeInfo"]["machineID"] for one in listed}) == 2
    summary = await world.api.get("/api/v1/nodes/node1/proxy/stats/summary")
    assert 0 < summary["node"]["memory"]["workingSetBytes"] < _MEMORY
    assert summary["node"]["memory"]["availableBytes"] < _MEMORY
    pods = sum(pod.get("memory", {}).get("workingSetBytes", 0) for pod in summary["pods"])
    assert summary["node"]["memory"]["workingSetBytes"] > pods


async def test_a_shell_on_a_node(world: World, shared_cluster: Cluster) -> None:
    def shell(*argv: str, node: str = "node1", check: bool = True) -> str:
        return cli("shell", node, "--name", shared_cluster.name, "--", *argv, check=check).stdout

    assert await asyncio.to_thread(shell, "hostname", node="node2") == "node2\n"
    assert "etcd" not in await asyncio.to_thread(shell, "ps", "ax")
    assert len((await asyncio.to_thread(shell, "ctr", "containers", "ls", "-q")).split()) > 1
    assert "node1" in await asyncio.to_thread(shell, "kubectl", "get", "node", "node1")
    words = ("shell", "node1", "--name", shared_cluster.name, "--", "sh", "-c", "exit 7")
    assert (await asyncio.to_thread(lambda: cli(*words, check=False))).returncode == 7
    unknown = ("shell", "node9", "--name", shared_cluster.name)
    refused = await asyncio.to_thread(lambda: cli(*unknown, check=False))
    assert refused.returncode == 1 and "There are: node1, node2" in refused.stderr


async def test_up_starts_a_killed_node_again(world: World, shared_cluster: Cluster) -> None:
    """SIGKILL of process 1 is a power failure: nothing of the node runs, other nodes and the control plane go on."""
    lock = units.machine_lock(shared_cluster.unit_dir("node2"))
    placed = manifest("stays", nodeName="node2", restartPolicy="Always")
    before = status_of(await world.run(placed))["containerID"]
    boot = (await world.api.get("/api/v1/nodes/node2"))["status"]["nodeInfo"]["bootID"]
    others = {unit: units.supervisor_pid(shared_cluster.unit_dir(unit)) for unit in ("node1", "control-plane")}
    agent = world.pid("node2", "agent")
    os.kill(process_one.alive(lock), signal.SIGKILL)

    async def ended() -> bool:
        return not process_one.alive(lock) and not os.path.exists(f"/proc/{agent}")

    await holds(ended, "the node and all of it has ended")
    assert world.pid("node2", "agent") == 0
    status = json.loads(
        (await asyncio.to_thread(lambda: cli("status", "--name", shared_cluster.name, "--json", check=False))).stdout
    )
    assert not [one for one in status["daemons"] if one["unit"] == "node2" and one["alive"]]
    await asyncio.to_thread(lambda: cli("up", "--name", shared_cluster.name, "--plain"))

    async def back() -> bool:
        pod, node = await world.get("stays"), await world.api.get("/api/v1/nodes/node2")
        again = status_of(pod)
        ready = condition(pod, "Ready").get("status") == condition(node, "Ready").get("status") == "True"
        return ready and again["containerID"] != before and node["status"]["nodeInfo"]["bootID"] != boot

    await holds(back, "the pod runs again on a node that says that it was started anew", 120)
    assert {unit: units.supervisor_pid(shared_cluster.unit_dir(unit)) for unit in others} == others
    assert Path(f"/proc/{process_one.alive(lock)}/root/etc/hostname").read_text() == "node2\n"
