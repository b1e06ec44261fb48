"""The files of a node's certificates, and the requests it signs."""

from __future__ import annotations

import datetime
import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.certificates.edge.certificate_store import CertificateStore, KeyFile, make_request, public_key, read_leaf
from agent.certificates.model import Template
from nodelib.errors import Invalid

WANTED = Template("system:node:n1", ("system:nodes",), ("n1",), ("10.0.0.2", "fd00::2"))


def sign(request_pem: bytes) -> bytes:
    """A certificate for what a request asks for, as a signer makes it."""
    request = x509.load_pem_x509_csr(request_pem)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(request.subject)
        .issuer_name(x509.Name([]))
        .public_key(request.public_key())
        .serial_number(1)
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(hours=1))
    )
    for extension in request.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(
        serialization.Encoding.PEM
    )


def test_a_request_asks_for_what_is_wanted() -> None:
    made = make_request(WANTED)
    assert x509.load_pem_x509_csr(made.request).is_signature_valid
    assert read_leaf(sign(made.request)).subject == WANTED


def test_a_pair_is_private_and_the_link_moves(tmp_path: Path) -> None:
    store = CertificateStore(str(tmp_path / "pki"), "kubelet-client")
    assert store.current() is None
    first, second = make_request(WANTED), make_request(WANTED)
    store.update(sign(first.request), first.key)
    before = os.readlink(store.path)
    pair = store.update(sign(second.request), second.key)
    assert os.readlink(store.path) != before
    assert stat.S_IMODE(os.stat(store.path).st_mode) == 0o600
    assert pair.leaf == store.current().leaf  # type: ignore[union-attr]
    assert store.path.endswith("kubelet-client-current.pem")


def test_old_pairs_go_away(tmp_path: Path) -> None:
    store = CertificateStore(str(tmp_path), "kubelet-client")
    for _ in range(8):
        made = make_request(WANTED)
        store.update(sign(made.request), made.key)
    assert len(list(tmp_path.glob("kubelet-client-2*.pem"))) == 4
    assert store.current() is not None


def test_a_file_with_both_is_stored_once(tmp_path: Path) -> None:
    made = make_request(WANTED)
    both = sign(made.request) + made.key
    store = CertificateStore(str(tmp_path), "kubelet-client")
    store.update(both, both)
    assert Path(store.path).read_bytes().count(b"BEGIN CERTIFICATE") == 1


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    store = CertificateStore(str(tmp_path), "kubelet-client")
    with pytest.raises(Invalid, match="the key does not belong to the certificate"):
        store.update(sign(make_request(WANTED).request), make_request(WANTED).key)
    assert store.current() is None


def test_the_first_key_outlives_a_restart(tmp_path: Path) -> None:
    file = KeyFile(str(tmp_path / "pki" / "kubelet-client.key.tmp"))
    key = file.get()
    assert file.get() == key
    assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600
    assert public_key(key) == public_key(key)
    file.remove()
    assert file.get() != key


def test_a_broken_key_file_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("no key")
    assert b"PRIVATE KEY" in KeyFile(str(path)).get()
