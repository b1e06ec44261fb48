"""CSI volumes of a real cluster, served by a driver that is a process of the node."""

from __future__ import annotations

import json
import os
import signal
import uuid

import pytest

from tests.builders.pods import manifest, sleeper
from tests.cluster.plugin_processes import Plugin, csi_driver, start_csi
from tests.cluster.world import Object, World, holds

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="a cluster needs root")]

_STORAGE = "/apis/storage.k8s.io/v1"


def volume(name: str, driver: str, claim: str, namespace: str, **spec: object) -> Object:
    """A PersistentVolume for one claim alone."""
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": claim},
            "csi": {"driver": driver, "volumeHandle": f"h-{name}", "fsType": "ext4", "volumeAttributes": {"pool": "a"}},
            **spec,
        },
    }


def claim(name: str, pv: str, **spec: object) -> Object:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"storageClassName": "", "volumeName": pv, **asked, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": body}


def driver_object(name: str, **spec: object) -> Object:
    return {"metadata": {"name": name}, "spec": {"attachRequired": False, "podInfoOnMount": True, **spec}}


async def test_a_claimed_volume_through_restarts(world: World) -> None:
    """Registered, staged, published, shared, kept over a SIGKILL of the agent, expanded, unpublished,
    unstaged, and nothing is left on the node."""
    node, tag = world.cluster.nodes[0].name, uuid.uuid4().hex[:5]
    name, pv = f"hp-{tag}.test", f"pv-{tag}"
    await world.api.post(f"{_STORAGE}/csidrivers", driver_object(name, fsGroupPolicy="File"))
    # The API server lets only claims of a class that can be expanded ask for more.
    grows = {"metadata": {"name": name}, "provisioner": name, "allowVolumeExpansion": True}
    await world.api.post(f"{_STORAGE}/storageclasses", grows)
    made = volume(pv, name, "data", world.namespace, storageClassName=name)
    await world.api.post("/api/v1/persistentvolumes", made)
    await world.api.post(world.path("persistentvolumeclaims"), claim("data", pv, storageClassName=name))
    mounted: Object = {
        "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}],
        "nodeName": node,
        "securityContext": {"fsGroup": 4321},
    }
    box = sleeper(volumeMounts=[{"name": "disk", "mountPath": "/data"}, sub_path()])
    try:
        async with csi_driver(world, node, name, "--topology", "test.example/rack=r7") as driver:
            await registered(world, node, name)
            await world.run(manifest("first", box, **mounted))
            await world.run(manifest("second", box, **mounted))
            await world.shell("first", "echo hello >/data/sub/greeting; stat -c %g /data/sub")
            assert await world.shell("second", "cat /sub/greeting /data/csi.storage.k8s.io_pod.name") == "hello\nsecond"
            assert (await world.shell("first", "stat -c %g /data/sub")).strip() == "4321"
            assert [len(driver.calls(one)) for one in ("NodeStageVolume", "NodePublishVolume")] == [1, 2]
            assert driver.calls("NodePublishVolume")[0]["staging_target_path"]
            await grown(world, driver, pv)
            (stats,) = [one for one in await volume_stats(world, node, "first") if one["name"] == "disk"]
            assert stats["pvcRef"]["name"] == "data" and (stats["usedBytes"], stats["inodesUsed"]) == (4096, 3)
            metrics = (await world.kubectl("get", "--raw", f"/api/v1/nodes/{node}/proxy/metrics")).text
            labels = f'namespace="{world.namespace}",persistentvolumeclaim="data"'
            assert f"kubelet_volume_stats_used_bytes{{{labels}}} 4096.0" in metrics

            await world.kill(node, "agent")
            await world.agent_well(node)
            await driver.stop()
            await holds(lambda: unregistered(world, node, name), "the driver has left the CSINode")
            assert await world.shell("second", "cat /sub/greeting") == "hello\n"
            await world.delete("first")
            await world.event("first", "FailedKillPod", "not found in the list of registered CSI drivers")
        async with csi_driver(world, node, name) as driver:
            await world.gone("first")
            assert not driver.calls("NodeUnstageVolume")
            await world.delete("second")
            await world.gone("second")
            await holds(lambda: called(driver.calls("NodeUnstageVolume")), "unstaged once nobody uses it")
            left = await world.in_node(
                node, "find", "/var/lib/kubelet/plugins/kubernetes.io/csi", "-name", "vol_data.json"
            )
            assert pv not in left.text and name not in left.text
    finally:
        await world.api.delete(f"/api/v1/persistentvolumes/{pv}")
        await world.api.delete(f"{_STORAGE}/storageclasses/{name}")
        await world.api.delete(f"{_STORAGE}/csidrivers/{name}")


async def test_inline_volumes_and_failures_that_say_why(world: World) -> None:
    node, name = world.cluster.nodes[0].name, f"in-{uuid.uuid4().hex[:5]}.test"
    spec = {"volumeLifecycleModes": ["Ephemeral"], "tokenRequests": [{"audience": "vault"}], "requiresRepublish": True}
    await world.api.post(f"{_STORAGE}/csidrivers", driver_object(name, **spec))
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"user": "joe"}}
    await world.api.post(world.path("secrets"), secret)
    source = {"driver": name, "volumeAttributes": {"size": "small"}, "nodePublishSecretRef": {"name": "s"}}
    mounted: Object = {"volumes": [{"name": "scratch", "csi": source}], "nodeName": node}
    box = sleeper(volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}])
    try:
        await world.create(manifest("waits", box, **mounted))
        await world.event("waits", "FailedMount", f"driver name {name} not found in the list of registered CSI drivers")
        driver = await start_csi(world, node, name)
        driver.fail(NodePublishVolume="INTERNAL")
        await world.event("waits", "FailedMount", "INTERNAL as the test asked for")
        driver.fail()
        await world.ready("waits")
        asked = driver.calls("NodePublishVolume")[-1]
        assert asked["secrets"] == {"user": "joe"} and asked["volume_context"]["size"] == "small"
        assert asked["volume_context"]["csi.storage.k8s.io/ephemeral"] == "true"
        tokens = json.loads(asked["volume_context"]["csi.storage.k8s.io/serviceAccount.tokens"])
        assert tokens["vault"]["token"] and not driver.calls("NodeStageVolume")
        await driver.stop(signal.SIGKILL)
        driver = await start_csi(world, node, name)
        await world.delete("waits")
        await world.gone("waits")
        assert driver.calls("NodeUnpublishVolume")[-1]["volume_id"] == asked["volume_id"]
        await driver.stop()
    finally:
        await world.api.delete(f"{_STORAGE}/csidrivers/{name}")


async def test_a_volume_that_a_controller_attaches(world: World) -> None:
    """The VolumeAttachment is made by kube-controller-manager; the test plays the driver's attacher."""
    node, tag = world.cluster.nodes[0].name, uuid.uuid4().hex[:5]
    name, pv = f"at-{tag}.test", f"pa-{tag}"
    await world.api.post(f"{_STORAGE}/csidrivers", driver_object(name, attachRequired=True))
    await world.api.post("/api/v1/persistentvolumes", volume(pv, name, "data", world.namespace))
    await world.api.post(world.path("persistentvolumeclaims"), claim("data", pv))
    mounted: Object = {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}], "nodeName": node}
    box = sleeper(volumeMounts=[{"name": "disk", "mountPath": "/data"}])
    try:
        async with csi_driver(world, node, name) as driver:
            await registered(world, node, name)
            await world.create(manifest("attached", box, **mounted))
            attachment = await attach(world, pv)
            await world.ready("attached")
            assert driver.calls("NodeStageVolume")[0]["publish_context"] == {"device": "/dev/made"}
            shown = await world.api.get(f"/api/v1/nodes/{node}")
            assert f"kubernetes.io/csi/{name}^h-{pv}" in shown["status"]["volumesInUse"]
            await world.delete("attached")
            await world.gone("attached")
            await holds(lambda: detached(world, attachment), "it is detached once the Node lets go of it")
    finally:
        await world.api.delete(f"/api/v1/persistentvolumes/{pv}")
        await world.api.delete(f"{_STORAGE}/csidrivers/{name}")


async def grown(world: World, driver: Plugin, pv: str) -> None:
    """The controller's part of an expansion is played by the test: the PersistentVolume has grown already."""
    more = {"storage": "2Gi"}
    await world.api.patch(f"/api/v1/persistentvolumes/{pv}", {"spec": {"capacity": more}})
    path = world.path("persistentvolumeclaims", "data")
    await world.api.patch(path, {"spec": {"resources": {"requests": more}}})
    waiting = {"type": "FileSystemResizePending", "status": "True"}
    resizing = {"conditions": [waiting], "allocatedResourceStatuses": {"storage": "NodeResizePending"}}
    await world.api.patch(f"{path}/status", {"status": {**resizing, "allocatedResources": more}})
    await world.until("data", lambda one: one["status"]["capacity"] == more, "2Gi", kind="persistentvolumeclaims")
    status = (await world.api.get(path))["status"]
    waits = [one for one in status.get("conditions") or [] if one["type"] == "FileSystemResizePending"]
    assert not waits and not status.get("allocatedResourceStatuses")
    assert driver.calls("NodeExpandVolume")[-1]["capacity_range"]["required_bytes"] == 2 << 30


async def volume_stats(world: World, node: str, name: str) -> list[Object]:
    """The volumes of a pod in /stats/summary."""
    summary = await world.api.get(f"/api/v1/nodes/{node}/proxy/stats/summary")
    named = {"name": name, "namespace": world.namespace}
    (found,) = [one for one in summary["pods"] if named.items() <= one["podRef"].items()]
    return list(found["volume"])


async def test_a_raw_block_device(world: World) -> None:
    node, tag = world.cluster.nodes[0].name, uuid.uuid4().hex[:5]
    name, pv = f"bd-{tag}.test", f"pb-{tag}"
    await world.api.post(f"{_STORAGE}/csidrivers", driver_object(name))
    made = volume(pv, name, "data", world.namespace, volumeMode="Block")
    del made["spec"]["csi"]["fsType"]
    await world.api.post("/api/v1/persistentvolumes", made)
    await world.api.post(world.path("persistentvolumeclaims"), claim("data", pv, volumeMode="Block"))
    mounted: Object = {"volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "data"}}], "nodeName": node}
    box = sleeper(volumeDevices=[{"name": "disk", "devicePath": "/dev/xvda"}])
    try:
        async with csi_driver(world, node, name) as driver:
            await world.run(manifest("raw", box, **mounted))
            await world.shell("raw", "echo from-the-pod | dd of=/dev/xvda conv=fsync 2>/dev/null")
            image = driver.folder / "volumes" / f"h-{pv}" / "disk.img"
            assert image.read_bytes().startswith(b"from-the-pod")
            assert "block" in driver.calls("NodeStageVolume")[0]["volume_capability"]
            await world.delete("raw")
            await world.gone("raw")
            await holds(lambda: called(driver.calls("NodeUnstageVolume")), "unstaged")
    finally:
        await world.api.delete(f"/api/v1/persistentvolumes/{pv}")
        await world.api.delete(f"{_STORAGE}/csidrivers/{name}")


def sub_path() -> Object:
    return {"name": "disk", "mountPath": "/sub", "subPath": "sub"}


async def registered(world: World, node: str, name: str) -> None:
    async def known() -> bool:
        found = await world.api.get(f"{_STORAGE}/csinodes/{node}")
        return any(one["name"] == name for one in found["spec"]["drivers"] or ())

    await holds(known, f"{name} is in the CSINode")
    shown = await world.api.get(f"/api/v1/nodes/{node}")
    assert name in shown["metadata"]["annotations"]["csi.volume.kubernetes.io/nodeid"]


async def unregistered(world: World, node: str, name: str) -> bool:
    found = await world.api.get(f"{_STORAGE}/csinodes/{node}")
    return all(one["name"] != name for one in found["spec"]["drivers"] or ())


async def called(calls: list[Object]) -> bool:
    return bool(calls)


async def attach(world: World, pv: str) -> str:
    """Say that the volume is attached, as a driver's controller does; the VolumeAttachment's name."""
    found: list[Object] = []

    async def there() -> bool:
        listed = (await world.api.get(f"{_STORAGE}/volumeattachments"))["items"]
        found[:] = [one for one in listed if one["spec"]["source"].get("persistentVolumeName") == pv]
        return bool(found)

    await holds(there, "the VolumeAttachment is there")
    name = str(found[0]["metadata"]["name"])
    status = {"status": {"attached": True, "attachmentMetadata": {"device": "/dev/made"}}}
    await world.api.patch(f"{_STORAGE}/volumeattachments/{name}/status", status, kind="merge")
    return name


async def detached(world: World, name: str) -> bool:
    listed = (await world.api.get(f"{_STORAGE}/volumeattachments"))["items"]
    return all(one["metadata"]["name"] != name or one["metadata"].get("deletionTimestamp") for one in listed)
