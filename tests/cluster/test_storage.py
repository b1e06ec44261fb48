"""Claims without a class: volumes of the driver of `up --storage`, made by upstream's provisioner, through every kill.

NODEWRIGHT_TEST_STORAGE=name uses an existing cluster, raised with --storage, and leaves it running.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator
from functools import partial

import pytest

from controlplane.cluster.model import Cluster
from csi.model import DRIVER, TOPOLOGY
from tests.builders.pods import manifest, sleeper
from tests.cluster.command_line import cli, lent_or_raised
from tests.cluster.reboot import as_after_a_reboot
from tests.cluster.world import Object, World, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_CLAIMS, _SNAPSHOTS = "persistentvolumeclaims", "/apis/snapshot.storage.k8s.io/v1/namespaces/{}/volumesnapshots"
_IMAGES = f"/var/lib/kubelet/plugins/{DRIVER}/storage/volumes"


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    """A cluster of their own, with volumes."""
    with lent_or_raised(
        "NODEWRIGHT_TEST_STORAGE", "tsto", "--no-uplink", "--no-demo", "--storage", timeout=1800
    ) as one:
        yield one


def claim(name: str, size: str = "64Mi", **spec: object) -> Object:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {**asked, **spec}}


def user(name: str, claimed: str, node: str = "") -> Object:
    """A pod with the claim at /data; the scheduler has to choose `node`."""
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": claimed}}
    box = sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}])
    there = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return manifest(name, box, volumes=[volume], **there)


async def make(world: World, obj: Object) -> None:
    await world.api.post(world.path(_CLAIMS), obj)


async def bound(world: World, name: str) -> Object:
    """The PersistentVolume of a claim."""
    found = await world.api.get(world.path(_CLAIMS, name))
    return dict(await world.api.get(f"/api/v1/persistentvolumes/{found['spec']['volumeName']}"))


async def images(world: World, node: str) -> list[str]:
    return (await world.in_node(node, "ls", _IMAGES)).text.split()


async def test_a_claim_without_a_class_from_its_first_pod_to_its_end(world: World) -> None:
    nodes = [one.name for one in world.cluster.nodes]
    await make(world, claim("data"))
    assert (await world.get("data", _CLAIMS))["status"]["phase"] == "Pending"
    await world.run(user("writer", "data"))
    node = (await world.get("writer"))["spec"]["nodeName"]
    volume = await bound(world, "data")
    terms = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert terms[0]["matchExpressions"] == [{"key": TOPOLOGY, "operator": "In", "values": [node]}]
    assert volume["spec"]["csi"]["driver"] == DRIVER
    await world.shell("writer", "echo hello >/data/greeting; sync")
    await world.delete("writer", grace=0)
    await world.gone("writer")
    await world.run(user("reader", "data"))
    assert (await world.get("reader"))["spec"]["nodeName"] == node
    assert await world.shell("reader", "cat /data/greeting") == "hello\n"
    capacities = (await world.api.get("/apis/storage.k8s.io/v1/namespaces/kube-system/csistoragecapacities"))["items"]
    shown = {one["nodeTopology"]["matchLabels"][TOPOLOGY] for one in capacities}
    assert shown == set(nodes)
    await world.delete("reader", grace=0)
    await world.gone("reader")
    number = volume["spec"]["csi"]["volumeHandle"]
    assert number in await images(world, node)
    await world.delete("data", _CLAIMS)

    async def gone() -> bool:
        return number not in await images(world, node)

    await holds(gone, "its image is gone")


def stateful_set(name: str, replicas: int) -> Object:
    """Each pod with a claim of its own at /data."""
    labels = {"app": name}
    pod = manifest("x", sleeper(volumeMounts=[{"name": "data", "mountPath": "/data"}]))["spec"]
    pod.pop("restartPolicy", None)
    spec = {
        "serviceName": name,
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "podManagementPolicy": "Parallel",
        "template": {"metadata": {"labels": labels}, "spec": pod},
        "volumeClaimTemplates": [claim("data")],
    }
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}


async def write_names(world: World, names: Iterable[str]) -> None:
    for name in names:
        await world.ready(name)
        await world.shell(name, f"echo {name} >/data/name; sync")


async def assert_names(world: World, names: Iterable[str]) -> None:
    for name in names:
        assert await world.shell(name, "cat /data/name") == f"{name}\n"


async def test_a_stateful_set_lives_through_kills_of_agent_and_driver(world: World) -> None:
    await world.create(stateful_set("db", 2))
    names = ("db-0", "db-1")
    await write_names(world, names)
    for program in ("agent", "csi", "csi-provisioner"):
        before = {name: (await world.get(name))["metadata"]["uid"] for name in names}
        for node in world.cluster.nodes:
            await world.kill(node.name, program)
        for node in world.cluster.nodes:
            await world.agent_well(node.name)
        await assert_names(world, names)  # what runs does not notice
        for name in names:
            await world.delete(name, grace=0)
        for name, old in before.items():
            await holds(partial(renewed, world, name, old), f"{name} was made anew")
            await world.ready(name)
        await assert_names(world, names)


async def test_a_stateful_set_waits_for_its_drained_node(world: World) -> None:
    """Its volumes are the node's: its pods wait, and say for what, until the node takes pods again."""
    await world.create(stateful_set("kept", 4))
    names = [f"kept-{at}" for at in range(4)]
    await write_names(world, names)
    there = [name for name in names if (await world.get(name))["spec"]["nodeName"] == "node2"]
    assert there, "pods are spread over the nodes"
    drain = ("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
    before = {name: (await world.get(name))["metadata"]["uid"] for name in there}
    try:
        await world.kubectl(*drain)
        for name, old in before.items():
            await holds(partial(renewed, world, name, old), f"{name} was made anew")
            await world.event(name, "FailedScheduling", "unschedulable")
        await assert_names(world, [name for name in names if name not in there])
    finally:
        await world.kubectl("uncordon", "node2")
    for name in there:
        assert (await world.ready(name))["spec"]["nodeName"] == "node2"
    await assert_names(world, names)


async def test_a_stateful_set_lives_through_a_power_cut(world: World) -> None:
    await world.create(stateful_set("last", 3))
    names = [f"last-{at}" for at in range(3)]
    await write_names(world, names)
    claims = {one: (await world.get(f"data-{one}", _CLAIMS))["spec"]["volumeName"] for one in names}
    await asyncio.to_thread(as_after_a_reboot, world.cluster)
    await asyncio.to_thread(cli, "start", "--name", world.cluster.name, "--plain")
    for one, volume in claims.items():
        await world.ready(one)
        assert (await world.get(f"data-{one}", _CLAIMS))["spec"]["volumeName"] == volume
    await assert_names(world, names)


async def renewed(world: World, name: str, old: str) -> bool:
    found = [one["metadata"]["uid"] for one in await world.pods() if one["metadata"]["name"] == name]
    return bool(found) and found[0] != old


async def test_a_claim_grows(world: World) -> None:
    """At once, or, where root lacks CAP_SYS_RESOURCE, with the next pod."""
    await make(world, claim("grows"))
    await world.run(user("first", "grows"))
    before = int((await world.shell("first", "df -k /data | tail -1 | awk '{print $2}'")).strip())
    more = {"storage": "256Mi"}
    await world.api.patch(world.path(_CLAIMS, "grows"), {"spec": {"resources": {"requests": more}}})

    async def asked() -> bool:
        return bool((await bound(world, "grows"))["spec"]["capacity"] == more)

    await holds(asked, "the PersistentVolume has the new size")

    async def tried() -> bool:
        status = (await world.get("grows", _CLAIMS))["status"]
        events = await world.events("first")
        refused = [one for one in events if one["reason"] == "VolumeResizeFailed" and "CAP_SYS" in one["message"]]
        return status["capacity"] == more or bool(refused)

    await holds(tried, "it has grown, or the kernel has refused it while it is mounted")
    await world.delete("first")  # with its grace, so that it is gone when its volume is
    await world.gone("first")
    await world.run(user("second", "grows"))
    await world.until("grows", lambda one: one["status"]["capacity"] == more, "256Mi", kind=_CLAIMS)
    assert int((await world.shell("second", "df -k /data | tail -1 | awk '{print $2}'")).strip()) > 3 * before


async def test_a_claim_that_grew_while_no_pod_used_it_has_its_size_when_the_next_pod_begins(world: World) -> None:
    """Also where root lacks CAP_SYS_RESOURCE: the agent takes the volume off the node, where it can grow, before."""
    await make(world, claim("idle"))
    await world.run(user("first", "idle"))
    await world.shell("first", "echo hello >/data/kept; sync")
    await world.delete("first")
    await world.gone("first")
    more = {"storage": "256Mi"}
    await world.api.patch(world.path(_CLAIMS, "idle"), {"spec": {"resources": {"requests": more}}})

    def waits_for_the_node(one: Object) -> bool:
        return bool(one["status"].get("allocatedResourceStatuses") == {"storage": "NodeResizePending"})

    await world.until("idle", waits_for_the_node, "the controller's part is done", kind=_CLAIMS)
    await world.run(user("second", "idle"))
    status = (await world.get("idle", _CLAIMS))["status"]
    resizing = {one["type"] for one in status.get("conditions") or []} - {"Unused"}  # which all claims have since 1.37
    assert (status["capacity"], resizing) == (more, set()), "the pod began when all was done"
    assert int((await world.shell("second", "df -m /data | tail -1 | awk '{print $2}'")).strip()) > 200
    assert await world.shell("second", "cat /data/kept") == "hello\n"


async def test_a_snapshot_and_a_clone(world: World) -> None:
    await make(world, claim("origin"))
    await world.run(user("writer", "origin"))
    await world.shell("writer", "echo before >/data/a; sync")
    snapshot = {"metadata": {"name": "s"}, "spec": {"source": {"persistentVolumeClaimName": "origin"}}}
    path = _SNAPSHOTS.format(world.namespace)
    await world.api.post(path, {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", **snapshot})

    async def taken() -> bool:
        return bool(((await world.api.get(f"{path}/s")).get("status") or {}).get("readyToUse"))

    await holds(taken, "the snapshot is ready")
    await world.shell("writer", "echo after >/data/a; sync")
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"}
    await make(world, claim("restored", dataSource=source))
    await make(world, claim("clone", dataSource={"kind": "PersistentVolumeClaim", "name": "origin"}))
    node = (await world.get("writer"))["spec"]["nodeName"]
    await world.run(user("one", "restored", node))
    await world.run(user("two", "clone", node))
    assert await world.shell("one", "cat /data/a") == "before\n"
    assert await world.shell("two", "cat /data/a") == "after\n"
    await world.api.delete(f"{path}/s")


async def test_what_no_node_has_room_for(world: World) -> None:
    await make(world, claim("huge", "15Ti"))
    await world.create(user("waits", "huge"))
    await world.event("waits", "FailedScheduling", "did not have enough free storage")
    said = cli("why", f"{world.namespace}/waits", "--name", world.cluster.name, check=False).stdout
    assert "free storage" in said


async def test_an_inline_volume(world: World) -> None:
    volume = {"name": "scratch", "csi": {"driver": DRIVER, "volumeAttributes": {"size": "32Mi"}}}
    box = sleeper(volumeMounts=[{"name": "scratch", "mountPath": "/data"}])
    await world.run(manifest("inline", box, volumes=[volume]))
    assert int((await world.shell("inline", "df -k /data | tail -1 | awk '{print $2}'")).strip()) < 32 << 10
    node = (await world.get("inline"))["spec"]["nodeName"]
    assert [one for one in await images(world, node) if one.startswith("inline-")]
    await world.delete("inline", grace=0)
    await world.gone("inline")

    async def removed() -> bool:
        return not [one for one in await images(world, node) if one.startswith("inline-")]

    await holds(removed, "its image is gone")
