"""Claims of a real API server, upstream's provisioner, resizer and snapshot controllers, and the driver.

The scheduler's choice of a node and the kubelet's calls are played by the test; everything else is
real.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from controlplane.cluster.edge.roots import cache_root
from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import snapshot_kinds, storage
from controlplane.cluster.plan.certificates import STORAGE_USER
from controlplane.cluster.work.workloads import apply
from csi.model import DRIVER, TOPOLOGY
from csi.settings import SOCKET
from nodelib.clock import SystemClock
from nodelib.json_values import Json
from nodelib.kube.access import ClusterAccess, save_kubeconfig
from nodelib.kube.client import ApiError, KubeClient
from tests.netns import api_server
from tests.netns.api_server import ApiServer, run_inside
from tests.netns.csi_world import MOUNT
from tests.netns.mount_namespace import isolated
from tests.netns.test_csi_daemon import Daemon, daemon
from tests.waiting import until

_FOLDERS = sorted(Path(cache_root(), "bin").glob("csi-*"))
_BUILT = [one for one in _FOLDERS if all((one / name).exists() for name in storage.HELPERS)]
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loop devices"),
    pytest.mark.skipif(not _BUILT, reason="the helpers are not built yet (minutes): `up --storage` does it"),
]
_NODE = "node1"
_CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
_VOLUMES = "/api/v1/persistentvolumes"
_SNAPSHOTS = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots"
_CONTENTS = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
_SECONDS = 60
_CONTROLLERS = (
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolumeclaim-protection-controller",
    "persistentvolume-protection-controller",
)


@contextlib.contextmanager
def helpers(folder: Path, server: ApiServer, one: Daemon) -> Iterator[None]:
    """Upstream's programs with the flags of `up`, in the API server's network; their logs are in `folder`."""
    save_kubeconfig(
        str(folder / "csi.conf"), ClusterAccess(server.server, token=server.tokens[STORAGE_USER], insecure=True)
    )
    save_kubeconfig(
        str(folder / "admin.conf"), ClusterAccess(server.server, token=server.tokens["admin"], insecure=True)
    )
    cluster = Cluster("lab", "10.89.3.0/24", Options(storage=True, nodes=1))
    node = cluster.nodes[0]
    assert node.name == _NODE
    programs = {name: (str(_BUILT[-1] / name), *flags) for name, flags in storage.helpers(cluster, node).items()}
    changed = {"/etc/kubernetes/csi.conf": str(folder / "csi.conf"), SOCKET: str(one.socket)}
    started = [
        start(folder, server, name, [replaced(word, changed) for word in argv], storage.environment(node))
        for name, argv in programs.items()
    ]
    binder = [str(folder / "kube-controller-manager"), f"--kubeconfig={folder}/admin.conf", "--leader-elect=false"]
    binder += [f"--controllers={','.join(_CONTROLLERS)}", f"--cert-dir={folder}/kcm"]
    started.append(start(folder, server, "kube-controller-manager", binder, {}))
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def replaced(word: str, changed: dict[str, str]) -> str:
    for old, new in changed.items():
        word = word.replace(old, new)
    return word


def start(
    folder: Path, server: ApiServer, name: str, argv: Sequence[str], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    with open(folder / f"{name}.log", "wb") as log:
        inside = ["nsenter", f"--net=/run/netns/{server.netns}", *argv]
        return subprocess.Popen(inside, stdout=log, stderr=log, env={**os.environ, **environment})


async def there(work: Callable[[], Awaitable[object]]) -> bool:
    """Whether the answer is true; what the API server does not have yet is not."""
    try:
        return bool(await work())
    except ApiError as error:
        if error.code != 404:
            raise
        return False


def claim(name: str, size: str = "64Mi", **spec: object) -> Json:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    chosen = {"volume.kubernetes.io/selected-node": _NODE}  # the scheduler's part
    meta = {"name": name, "annotations": chosen}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": asked}


async def volume_of(api: KubeClient, name: str) -> Json:
    """The PersistentVolume of a claim, once it is bound."""
    found: list[Json] = []

    async def bound() -> bool:
        shown = await api.get(f"{_CLAIMS}/{name}")
        found[:] = [shown]
        return bool((shown.get("status") or {}).get("phase") == "Bound")

    await until(lambda: there(bound), _SECONDS)
    return dict(await api.get(f"{_VOLUMES}/{found[0]['spec']['volumeName']}"))


def test_claims_growth_and_snapshots(tmp_path: Path) -> None:
    @isolated
    def run() -> None:
        folder = tmp_path / "a"
        folder.mkdir()
        with api_server.running(folder, [], users=[STORAGE_USER]) as server, daemon(tmp_path) as one:
            run_inside(server.netns, lambda: prepare(server))
            with helpers(folder, server, one):
                try:
                    run_inside(server.netns, lambda: story(server, one, tmp_path), timeout=150)
                except BaseException as error:
                    logs = [f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(folder.glob("*s*.log"))]
                    raise AssertionError("\n".join(logs)) from error

    run()


async def prepare(server: ApiServer) -> None:
    """What `up` applies, and what a kubelet registers."""
    async with KubeClient(server.access("admin"), user_agent="test") as api:
        objects = [*storage.rights(), *storage.objects(), *snapshot_kinds.kinds(), storage.snapshot_class()]
        await apply(api, objects, SystemClock())
        labels = {TOPOLOGY: _NODE, "kubernetes.io/hostname": _NODE}
        await api.post("/api/v1/nodes", {"metadata": {"name": _NODE, "labels": labels}})
        drivers = [{"name": DRIVER, "nodeID": _NODE, "topologyKeys": [TOPOLOGY]}]
        await api.post("/apis/storage.k8s.io/v1/csinodes", {"metadata": {"name": _NODE}, "spec": {"drivers": drivers}})


async def story(server: ApiServer, one: Daemon, folder: Path) -> None:
    async with KubeClient(server.access("admin"), user_agent="test") as api:
        await api.post(_CLAIMS, claim("data"))
        made = await volume_of(api, "data")
        assert made["spec"]["storageClassName"] == storage.CLASS and made["spec"]["csi"]["driver"] == DRIVER
        terms = made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert terms[0]["matchExpressions"] == [{"key": TOPOLOGY, "operator": "In", "values": [_NODE]}]
        number = made["spec"]["csi"]["volumeHandle"]
        staged = folder / "staged"
        staged.mkdir()
        await asyncio.to_thread(stage, one, number, staged)
        (staged / "a").write_text("before")

        await capacity(api)
        await snapshot_and_restore(api, one, folder, staged)
        await growth(api, made["metadata"]["name"])

        await asyncio.to_thread(one.call, "Node.NodeUnstageVolume", volume_id=number, staging_target_path=str(staged))
        await api.delete(f"{_CLAIMS}/data")
        images = folder / "storage" / "volumes"
        await until(lambda: number not in os.listdir(images), _SECONDS)


def stage(one: Daemon, number: str, target: Path) -> None:
    one.call("Node.NodeStageVolume", volume_id=number, staging_target_path=str(target), volume_capability=MOUNT)


async def capacity(api: KubeClient) -> None:
    async def shown() -> list[Json]:
        path = "/apis/storage.k8s.io/v1/namespaces/kube-system/csistoragecapacities"
        return list((await api.get(path))["items"])

    await until(shown, _SECONDS)
    (found,) = await shown()
    assert found["storageClassName"] == storage.CLASS and found["capacity"]
    assert found["nodeTopology"]["matchLabels"] == {TOPOLOGY: _NODE}


async def snapshot_and_restore(api: KubeClient, one: Daemon, folder: Path, staged: Path) -> None:
    body = {"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot", "metadata": {"name": "s"}}
    await api.post(_SNAPSHOTS, {**body, "spec": {"source": {"persistentVolumeClaimName": "data"}}})

    async def ready() -> bool:
        return bool(((await api.get(f"{_SNAPSHOTS}/s")).get("status") or {}).get("readyToUse"))

    await until(ready, _SECONDS)
    (staged / "a").write_text("after")
    await one_that_exists_already(api)
    source = {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "again"}
    await api.post(_CLAIMS, claim("restored", dataSource=source))
    restored = (await volume_of(api, "restored"))["spec"]["csi"]["volumeHandle"]
    target = folder / "restored"
    target.mkdir()
    await asyncio.to_thread(stage, one, restored, target)
    assert (target / "a").read_text() == "before"
    await api.delete(f"{_SNAPSHOTS}/again")
    await api.delete(f"{_SNAPSHOTS}/s")
    await until(lambda: os.listdir(folder / "storage" / "snapshots") == [], _SECONDS)


async def one_that_exists_already(api: KubeClient) -> None:
    """The snapshot `again`, of what a handle names: nobody says which node has it."""
    made = (await api.get(f"{_SNAPSHOTS}/s"))["status"]["boundVolumeSnapshotContentName"]
    handle = (await api.get(f"{_CONTENTS}/{made}"))["status"]["snapshotHandle"]
    assert handle.endswith(f"@{_NODE}")
    group = {"apiVersion": "snapshot.storage.k8s.io/v1"}
    spec = {
        "driver": DRIVER,
        "deletionPolicy": "Retain",
        "source": {"snapshotHandle": handle},
        "volumeSnapshotRef": {"name": "again", "namespace": "default"},
    }
    content = {**group, "kind": "VolumeSnapshotContent", "metadata": {"name": "kept"}, "spec": spec}

    async def taken() -> bool:
        try:
            return bool(await api.post(_CONTENTS, content))
        except ApiError as error:
            if error.code != 503:  # the policy that adds the label does not know the kind yet
                raise
            return False

    await until(taken, _SECONDS)
    source = {"source": {"volumeSnapshotContentName": "kept"}}
    await api.post(_SNAPSHOTS, {**group, "kind": "VolumeSnapshot", "metadata": {"name": "again"}, "spec": source})

    async def ready() -> bool:
        return bool(((await api.get(f"{_SNAPSHOTS}/again")).get("status") or {}).get("readyToUse"))

    await until(ready, _SECONDS)


async def growth(api: KubeClient, volume: str) -> None:
    """The kubelet does the rest, with NodeExpandVolume."""
    more = {"storage": "128Mi"}
    await api.patch(f"{_CLAIMS}/data", {"spec": {"resources": {"requests": more}}}, kind="merge")

    async def asked() -> bool:
        return bool((await api.get(f"{_VOLUMES}/{volume}"))["spec"]["capacity"] == more)

    await until(asked, _SECONDS)

    async def pending() -> bool:
        conditions = ((await api.get(f"{_CLAIMS}/data"))["status"]).get("conditions") or []
        return any(entry["type"] == "FileSystemResizePending" for entry in conditions)

    await until(pending, _SECONDS)
