"""Certificates as they are on disk: made, kept, renewed; verified by the ssl module as a client does."""

from __future__ import annotations

import json
import os
import ssl
import time
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
