"""Which certificate a node with rotation begins with: the one it stored, or a newer one in its kubeconfig."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.build.credentials import find_credentials
from agent.certificates.edge.certificate_store import CertificateStore
from agent.config.parse import parse
from agent.settings import Settings
from nodelib.clock import SystemClock
from nodelib.kube.access import ClusterAccess, save_kubeconfig


def made(name: str, begins: float) -> tuple[bytes, bytes]:
    """A certificate that began `begins` seconds ago and is valid for a day, and its key."""
    key, start = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start -= datetime.timedelta(seconds=begins)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8
    pem = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return certificate.public_bytes(serialization.Encoding.PEM), pem


def settings(folder: Path) -> Settings:
    config = folder / "config.yaml"
    config.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nrotateCertificates: true\n"
    )
    return parse(
        [f"--config={config}", f"--kubeconfig={folder}/kubelet.conf", f"--cert-dir={folder}/pki"], hostname="n1"
    )


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize(
    ("stored", "given", "used"),
    [
        pytest.param(3600, 7200, "stored", id="stored is newer: it was rotated"),
        pytest.param(7200, 3600, "given", id="kubeconfig is newer: another authority, perhaps"),
        pytest.param(None, 3600, "given", id="nothing is stored"),
    ],
)
async def test_the_newer_one_is_used(tmp_path: Path, stored: int | None, given: int, used: str, embedded: bool) -> None:
    store = CertificateStore(str(tmp_path / "pki"), "kubelet-client")
    if stored is not None:
        store.update(*made("stored", stored))
    cert, key = made("given", given)
    (tmp_path / "c.crt").write_bytes(cert)
    (tmp_path / "c.key").write_bytes(key)
    access = ClusterAccess("https://127.0.0.1:1", ca_data=cert)
    if embedded:
        access = replace(access, cert_data=cert, key_data=key)
    else:
        access = replace(access, cert_file=str(tmp_path / "c.crt"), key_file=str(tmp_path / "c.key"))
    save_kubeconfig(str(tmp_path / "kubelet.conf"), access)
    found = await find_credentials(settings(tmp_path), SystemClock(), user_agent="test")
    current = store.current()
    assert current is not None and current.leaf.subject.common_name == used
    assert found.access.cert_file == store.path
    assert found.rotate_at_once is (embedded and used == "given")
