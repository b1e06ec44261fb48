"""Certificates as they are on disk: made, kept, renewed; verified by the ssl module as a client does."""

from __future__ import annotations

import json
import os
import resource
import shutil
import ssl
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controlplane.cluster.model import Cluster, Options
from controlplane.cluster.work import pki

NOW = time.time()


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster("lab", "10.89.3.0/24", Options(nodes=1), root=str(tmp_path))


def test_a_second_run_keeps_everything(cluster: Cluster) -> None:
    first = pki.ensure(cluster, NOW)
    assert f"{cluster.pki_dir}/apiserver" in first
    before = _content(cluster)
    assert pki.ensure(cluster, NOW + 3600) == {}
    assert _content(cluster) == before


def test_only_what_has_other_names_is_made_again(cluster: Cluster) -> None:
    pki.ensure(cluster, NOW)
    grown = replace(cluster, options=Options(nodes=2))
    made = pki.ensure(grown, NOW)
    assert made[f"{cluster.pki_dir}/apiserver"] == "other names"
    assert f"{cluster.pki_dir}/ca" not in made
    assert f"{cluster.pki_dir}/encryption.json" not in made
    assert f"{cluster.node_dir('node1')}/kubernetes/pki/kubelet" not in made


def test_leaves_are_renewed_near_their_end_and_the_authority_stays(cluster: Cluster) -> None:
    pki.ensure(cluster, NOW)
    made = pki.ensure(cluster, NOW + 350 * 86400)
    assert made[f"{cluster.pki_dir}/admin"] == "expires soon"
    assert cluster.admin_kubeconfig in made
    assert f"{cluster.pki_dir}/ca" not in made


@pytest.mark.parametrize("damage", [b"", b"not a certificate"], ids=["empty", "nonsense"])
def test_a_damaged_file_is_made_again(cluster: Cluster, damage: bytes) -> None:
    pki.ensure(cluster, NOW)
    Path(cluster.pki_dir, "apiserver.crt").write_bytes(damage)
    assert pki.ensure(cluster, NOW) == {f"{cluster.pki_dir}/apiserver": "missing"}


def test_a_link_that_a_node_left_leads_nowhere(cluster: Cluster, tmp_path: Path) -> None:
    """The node sees its folder as /etc/kubernetes, and whoever is root in it may change it."""
    pki.ensure(cluster, NOW)
    folder, elsewhere = Path(cluster.node_dir("node1"), "kubernetes"), tmp_path / "elsewhere"
    shutil.rmtree(folder / "pki")
    elsewhere.mkdir()
    (folder / "pki").symlink_to(elsewhere)
    pki.ensure(cluster, NOW)
    assert list(elsewhere.iterdir()) == []
    assert not (folder / "pki").is_symlink() and (folder / "pki" / "kubelet.key").exists()


def test_the_mode_of_what_a_link_leads_to_is_not_changed(cluster: Cluster, tmp_path: Path) -> None:
    pki.ensure(cluster, NOW)
    authority, other = Path(cluster.node_dir("node1"), "kubernetes/pki/ca.crt"), tmp_path / "other"
    other.write_bytes(authority.read_bytes())
    other.chmod(0o644)
    authority.unlink()
    authority.symlink_to(other)
    pki.ensure(cluster, NOW)
    assert other.stat().st_mode & 0o777 == 0o644
    assert not authority.is_symlink() and authority.stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(30)
@pytest.mark.parametrize("how", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "endless"])
def test_a_file_of_a_node_that_never_ends_is_made_again(cluster: Cluster, how: Callable[[Path], None]) -> None:
    pki.ensure(cluster, NOW)
    path = Path(cluster.node_dir("node1"), "kubernetes/pki/kubelet.crt")
    path.unlink()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (2 << 30, before[1]))
    try:
        how(path)
        assert pki.ensure(cluster, NOW) == {str(path.with_suffix("")): "missing"}
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert path.read_bytes().startswith(b"-----BEGIN")


def test_a_new_authority_signs_everything_anew(cluster: Cluster) -> None:
    pki.ensure(cluster, NOW)
    Path(cluster.pki_dir, "ca.key").unlink()
    made = pki.ensure(cluster, NOW)
    assert made[f"{cluster.pki_dir}/apiserver"] == "signed by another authority"
    assert f"{cluster.pki_dir}/etcd/server" not in made


def test_secrets_are_for_root_only(cluster: Cluster) -> None:
    pki.ensure(cluster, NOW)
    for folder, _, names in os.walk(cluster.dir):
        for name in names:
            if name.endswith((".key", ".conf", ".json")):
                assert os.stat(os.path.join(folder, name)).st_mode & 0o077 == 0, name


def test_openssl_takes_the_chain(cluster: Cluster) -> None:
    """A handshake in memory: the API server's certificate, an admin's client certificate, one authority."""
    pki.ensure(cluster, NOW)
    authority = f"{cluster.pki_dir}/ca.crt"
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(f"{cluster.pki_dir}/apiserver.crt", f"{cluster.pki_dir}/apiserver.key")
    client = ssl.create_default_context(cafile=authority)
    client.load_cert_chain(f"{cluster.pki_dir}/admin.crt", f"{cluster.pki_dir}/admin.key")
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname="kubernetes.default.svc")
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done = set()
    for _ in range(10):
        for side in (near, far):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                continue
    assert done == {near, far}
    certificate: dict[str, Any] = far.getpeercert() or {}
    subject = dict(part[0] for part in certificate["subject"])
    assert subject == {"organizationName": "system:masters", "commonName": "kubernetes-admin"}


def test_a_kubeconfig_holds_all_it_needs(cluster: Cluster) -> None:
    pki.ensure(cluster, NOW)
    config = json.loads(Path(cluster.admin_kubeconfig).read_text())
    assert config["clusters"][0]["cluster"]["server"] == "https://10.89.3.11:6443"
    assert set(config["users"][0]["user"]) == {"client-certificate-data", "client-key-data"}


def test_a_kubelet_s_kubeconfig_names_files_so_that_it_rotates_when_due(cluster: Cluster) -> None:
    """An embedded certificate is replaced at once (kubeadm's first node): a request for each start of a cluster."""
    pki.ensure(cluster, NOW)
    own = f"{cluster.node_dir('node1')}/kubernetes"
    user = json.loads(Path(own, "kubelet.conf").read_text())["users"][0]["user"]
    assert user == {
        "client-certificate": "/etc/kubernetes/pki/kubelet-client.crt",
        "client-key": "/etc/kubernetes/pki/kubelet-client.key",
    }
    assert Path(own, "pki/kubelet-client.crt").exists() and Path(own, "pki/kubelet-client.key").exists()


def test_files_of_a_node_are_for_root_only(cluster: Cluster) -> None:
    """CIS 4.1.3, 4.1.5, 4.1.7."""
    pki.ensure(cluster, NOW)
    own = f"{cluster.node_dir('node1')}/kubernetes"
    for name in ("kubelet.conf", "proxy.conf", "pki/ca.crt"):
        assert os.stat(f"{own}/{name}").st_mode & 0o777 == 0o600, name
    os.chmod(f"{own}/pki/ca.crt", 0o644)
    pki.ensure(cluster, NOW)
    assert os.stat(f"{own}/pki/ca.crt").st_mode & 0o777 == 0o600


def _content(cluster: Cluster) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in Path(cluster.dir).rglob("*") if path.is_file()}
