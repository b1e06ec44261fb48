"""What `up --storage` adds to a cluster."""

from __future__ import annotations

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.plan import certificates, components, snapshot_kinds, storage
from controlplane.cluster.plan.components import Tools
from controlplane.cluster.plan.manifests import path_of
from csi.model import DRIVER
from csi.settings import SOCKET, load_settings

TOOLS = Tools({name: f"/bin/{name}" for name in storage.HELPERS}, "/venv/python", "/project")


def cluster(**options: object) -> Cluster:
    return Cluster("lab", "10.89.3.0/24", Options(**options))  # type: ignore[arg-type]


def test_nothing_of_it_is_in_a_cluster_without() -> None:
    made = cluster()
    assert not set(storage.HELPERS) & set(components.needed(made.options))
    assert not [one for one in certificates.certificates(made) if one.common_name == certificates.STORAGE_USER]
    assert not Options(storage=True, kubeadm=True).provides_volumes


def test_every_node_has_a_driver_with_its_own_helpers_and_one_has_those_of_the_cluster() -> None:
    made = cluster(storage=True, nodes=3)
    assert set(storage.HELPERS) <= set(components.needed(made.options))
    programs = [[one.name for one in components.volumes(made, node, TOOLS)] for node in made.nodes]
    own = ["csi", storage.PROVISIONER, storage.SNAPSHOTTER]
    assert programs == [[*own, storage.RESIZER, storage.SNAPSHOT_CONTROLLER], own, own]


def test_the_driver_takes_its_command_line_and_its_helpers_find_it() -> None:
    made = cluster(storage=True)
    driver, provisioner, *_ = components.volumes(made, made.nodes[1], TOOLS)
    settings = load_settings(driver.argv[3:])
    assert (settings.node, settings.socket) == (made.nodes[1].name, SOCKET)
    assert f"--csi-address={SOCKET}" in provisioner.argv
    assert provisioner.env["NODE_NAME"] == made.nodes[1].name


def test_every_node_has_a_key_of_its_own() -> None:
    made = cluster(storage=True)
    paths = [one.path for one in certificates.certificates(made) if one.common_name == certificates.STORAGE_USER]
    assert len(set(paths)) == len(made.nodes)
    files = [one for one in certificates.kubeconfigs(made) if one.path.endswith("/csi.conf")]
    assert [one.certificate for one in files] == paths


def test_every_object_has_a_path() -> None:
    objects = [*storage.rights(), *storage.objects(), *snapshot_kinds.kinds(), storage.snapshot_class()]
    paths = [path_of(one) for one in objects]
    assert len(set(paths)) == len(paths)
    assert f"/apis/storage.k8s.io/v1/csidrivers/{DRIVER}" in paths
    assert "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses/local" in paths
