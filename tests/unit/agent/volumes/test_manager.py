"""VolumeManager: mount, refresh and release, on an API server and a disk in memory."""

from __future__ import annotations

import asyncio
import threading

import pytest

from agent.common.model.pod_settings import NodeContext, PodPaths
from agent.common.model.pods import Pod
from agent.volumes.model.sources import CONFIG_MAP, SECRET, Credential, ObjectRef
from agent.volumes.model.volumes import AtomicVolume, DiskVolume
from agent.volumes.work.manager import VolumeManager, VolumeManagerDeps
from nodelib.errors import Invalid, Temporary
from tests.builders.claims import bound
from tests.builders.pods import container, pod, user_of
from tests.fakes.volumes import FakeCertificates, FakeCsi, FakeDisk, FakeLocal, FakeObjects
from tests.waiting import until

CM, SEC = ObjectRef(CONFIG_MAP, "settings"), ObjectRef(SECRET, "keys")
CERTIFICATE = {"podCertificate": {"signerName": "example.com/s", "keyType": "ED25519", "credentialBundlePath": "b"}}


class World:
    def __init__(self) -> None:
        self.objects, self.disk, self.certificates = FakeObjects(), FakeDisk(), FakeCertificates()
        self.objects.found = {CM: {"data": {"a": "1"}}, SEC: {"data": {"k": "dg=="}}}
        self.measured: list[tuple[str, str]] = []
        facts = NodeContext(allocatable={"cpu": "2", "memory": "1Gi"})
        self.volumes = VolumeManager(
            "/var/lib/kubelet",
            VolumeManagerDeps(
                self.objects,
                self.certificates,
                self.disk,
                FakeCsi(),
                FakeLocal(),
                lambda: facts,
                lambda plugin, operation, seconds: self.measured.append((plugin, operation)),
            ),
        )


@pytest.fixture
def world() -> World:
    return World()


async def test_refresh_updates_what_it_can(world: World) -> None:
    subject = pod(
        user_of("c", "s"),
        volumes=[{"name": "c", "configMap": {"name": "settings"}}, {"name": "s", "secret": {"secretName": "keys"}}],
    )
    await world.volumes.mount(subject)
    world.objects.found = {SEC: {"data": {"k": "bmV3"}}}
    with pytest.raises(Temporary, match='configmap "settings" not found'):
        await world.volumes.refresh(subject)
    current = {plan.name: plan for plan in world.disk.volumes[subject.uid] if isinstance(plan, AtomicVolume)}
    assert current["s"].files["k"].data == b"new"
    assert current["c"].files["a"].data == b"1"


async def test_the_pods_of_a_namespace_are_updated_one_at_a_time(world: World) -> None:
    """A hundred that share a map had a thread each at the same time, which left the event loop of all others a part of
    a hundred: turns of it came 0.19 s late."""
    under_way, at_once, go = list[str](), list[int](), threading.Event()

    def update(paths: PodPaths, plans: list[DiskVolume]) -> list[str]:
        under_way.append(paths.uid)
        at_once.append(len(under_way))
        go.wait(30)
        under_way.remove(paths.uid)
        return []

    world.disk.update = update  # type: ignore[method-assign]
    volume = {"name": "c", "configMap": {"name": "settings"}}
    mine = [pod(user_of("c"), volumes=[volume], meta={"uid": f"u{number}"}) for number in range(5)]
    other = pod(user_of("c"), volumes=[volume], meta={"uid": "u9", "namespace": "other"})
    for one in (*mine, other):
        await world.volumes.mount(one)
    refreshed = [asyncio.create_task(world.volumes.refresh(one)) for one in (*mine, other)]
    assert await until(lambda: "u9" in under_way)
    assert sorted(under_way)[:1] != ["u9"] and len(under_way) == 2
    go.set()
    await asyncio.gather(*refreshed)
    assert len(at_once) == 6 and max(at_once) == 2


async def test_sources_are_ready_before_there_is_a_token(world: World) -> None:
    token = {"serviceAccountToken": {"path": "token"}}
    projected = {"name": "v", "projected": {"sources": [token, {"configMap": {"name": "settings"}}]}}
    assert await world.volumes.sources_ready(pod(user_of("v"), volumes=[projected]))
    assert not world.disk.volumes
    missing = {"name": "v", "configMap": {"name": "missing"}}
    assert not await world.volumes.sources_ready(pod(user_of("v", "w"), volumes=[projected, {**missing, "name": "w"}]))
    world.objects.down = True
    with pytest.raises(Temporary):
        await world.volumes.sources_ready(pod(user_of("v"), volumes=[missing]))


async def test_a_slow_signer_delays_its_own_volume_only(world: World) -> None:
    projected = {"name": "tls", "projected": {"sources": [CERTIFICATE]}}
    subject = pod(user_of("c", "tls"), volumes=[{"name": "c", "configMap": {"name": "settings"}}, projected])
    with pytest.raises(Temporary, match="not issued yet"):
        await world.volumes.mount(subject)
    world.certificates.issued["tls"] = Credential(b"KEY", b"1")
    await world.volumes.mount(subject)
    world.objects.found = {CM: {"data": {"a": "2"}}}
    del world.certificates.issued["tls"]
    with pytest.raises(Temporary, match="not issued yet"):
        await world.volumes.refresh(subject)
    current = {plan.name: plan for plan in world.disk.volumes[subject.uid] if isinstance(plan, AtomicVolume)}
    assert current["c"].files["a"].data == b"2"
    assert current["tls"].files["b"].data == b"KEY1"
    assert current["tls"].in_memory
    await world.volumes.release(subject.uid)
    assert world.certificates.dropped == [subject.uid]


async def test_the_error_of_a_busy_volume_names_its_pod(world: World) -> None:
    subject = pod()
    await world.volumes.mount(subject)
    world.disk.busy.add(subject.uid)
    with pytest.raises(Temporary, match="unmount its volumes") as raised:
        await world.volumes.release(subject.uid)
    assert subject.uid in str(raised.value)
    world.disk.busy.clear()
    await world.volumes.release(subject.uid)
    assert await world.volumes.pods_on_disk() == []


async def test_release_removes_directory_and_watches(world: World) -> None:
    subject = pod()
    await world.volumes.mount(subject)
    assert await world.volumes.pods_on_disk() == [subject.uid]
    await world.volumes.release(subject.uid)
    assert (await world.volumes.pods_on_disk(), world.objects.dropped) == ([], [subject.uid])


async def test_a_refresh_after_the_release_keeps_nothing_watched(world: World) -> None:
    subject = pod()
    await world.volumes.mount(subject)
    await world.volumes.release(subject.uid)
    await world.volumes.refresh(subject)
    assert world.objects.dropped == [subject.uid] * 2


async def test_a_volume_that_no_container_mounts_is_left_alone(world: World) -> None:
    """Also if its source is missing, or nobody could mount it. Images are pulled whoever mounts them."""
    world.objects.claims = {"c": bound({"local": {"path": "/dev/sdz"}, "volumeMode": "Block"})}
    claimed = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    others = [
        {"name": "w", "configMap": {"name": "missing"}},
        {"name": "x", "nfs": {"server": "s", "path": "/"}},
        {"name": "y", "emptyDir": {}},
        {"name": "z", "image": {"reference": "i"}},
    ]
    volumes = [claimed, *others]
    assert list(await world.volumes.mount(pod(container("main"), volumes=volumes))) == ["z"]
    assert await world.volumes.sources_ready(pod(container("main"), volumes=others[:3]))
    await world.volumes.refresh(pod(container("main"), volumes=others))
    user = user_of("y")
    assert set(await world.volumes.mount(pod(user, volumes=volumes))) == {"y", "z"}
    device = container("debug", volumeDevices=[{"name": "v", "devicePath": "/dev/v"}])
    assert set(await world.volumes.mount(pod(user, ephemeralContainers=[device], volumes=volumes))) == {"v", "y", "z"}


async def test_volumes_are_counted_by_plugin_and_their_operations_measured(world: World) -> None:
    world.objects.claims = {
        "c": bound({"local": {"path": "/dev/sdz"}}),
        "d": bound({"csi": {"driver": "disks.example", "volumeHandle": "h"}}),
    }
    claimed = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in "cd"]
    subject = pod(
        user_of("words", "scratch", "logs", "c", "d"),
        volumes=[
            {"name": "words", "configMap": {"name": "settings"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "logs", "hostPath": {"path": "/var/log"}},
            {"name": "model", "image": {"reference": "models/small:1"}},
            *claimed,
        ],
    )
    plugins = ["configmap", "empty-dir", "host-path", "image", "local-volume", "csi:disks.example"]
    await world.volumes.mount(subject)
    each = {(f"kubernetes.io/{name}", state): 1 for name in plugins for state in ("desired", "actual")}
    assert world.volumes.counts() == each
    assert sorted(world.measured) == sorted((f"kubernetes.io/{name}", "volume_mount") for name in plugins)
    world.measured.clear()
    await world.volumes.release(subject.uid)
    assert world.volumes.counts() == {}
    assert sorted(world.measured) == sorted((f"kubernetes.io/{name}", "volume_unmount") for name in plugins)


async def test_a_volume_that_cannot_be_mounted_is_desired_and_not_there(world: World) -> None:
    world.objects.claims = {"c": bound({"hostPath": {"path": "/var/log"}, "accessModes": ["ReadWriteOncePod"]})}
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    await world.volumes.mount(pod(user_of("v"), volumes=[volume]))
    other = pod(user_of("v"), meta={"uid": "another"}, volumes=[volume])
    with pytest.raises(Temporary):
        await world.volumes.mount(other)
    counts = world.volumes.counts()
    assert counts == {("kubernetes.io/host-path", "desired"): 2, ("kubernetes.io/host-path", "actual"): 1}


async def test_mounts_of_a_namespace_come_back_with_the_end_of_its_pods(world: World) -> None:
    """Linux has 100,000 for all pods of a node."""

    def many(uid: str, count: int) -> Pod:
        mounts = [{"name": "v", "mountPath": f"/m/{number}", "subPath": "a"} for number in range(count)]
        return pod(container(volumeMounts=mounts), meta={"uid": uid}, volumes=[{"name": "v", "emptyDir": {}}])

    with pytest.raises(Invalid, match="24000 mounts, more than 1000"):
        await world.volumes.mount(many("u", 24_000))
    for number in range(5):
        await world.volumes.mount(many(f"u{number}", 1000))
    with pytest.raises(Temporary, match="5000 are the most"):
        await world.volumes.mount(many("late", 1))
    await world.volumes.release("u3")
    await world.volumes.mount(many("late", 1))
