"""The serving certificate: files that change, the self-signed pair, and settings that are wrong."""

from __future__ import annotations

import contextlib
import os
import ssl
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from agent.server.edge.certificates import ensure_self_signed, subject_of
from agent.server.edge.tls import ServingTls
from agent.server.model import TlsFiles
from nodelib.errors import Invalid
from tests.unit.agent.server.conftest import Authority, Bench


def _serial(bench: Bench) -> int:
    assert bench.server is not None
    pem = ssl.get_server_certificate(("localhost", bench.server.addresses["kubelet"][1]))
    return x509.load_pem_x509_certificate(pem.encode()).serial_number


async def _served(bench: Bench) -> int:
    import asyncio

    return await asyncio.to_thread(_serial, bench)


async def test_a_renewed_certificate_is_served_without_a_restart(bench: Bench) -> None:
    await bench.start(bench.settings())
    first = await _served(bench)
    assert await _served(bench) == first
    bench.authority.issue("serving", "node-1")
    second = await _served(bench)
    assert second != first
    (bench.folder / "serving.crt").write_text("half a certif")
    assert await _served(bench) == second


async def test_new_client_authorities_count_at_once(bench: Bench) -> None:
    await bench.start(bench.settings(mode="AlwaysAllow"))
    other = bench.folder / "other"
    other.mkdir()
    newer = Authority(other, "ca-2")
    pair = newer.issue("admin", "admin")
    with pytest.raises(Exception, match=r"(?i)ssl|alert|closed|reset|disconnect"):
        await bench.get("/pods", bench.tls(pair))
    trusted = bench.tls(pair)
    old = bench.tls(bench.authority.issue("old", "old"))
    bench.authority.path.write_bytes(newer.path.read_bytes())
    assert (await bench.get("/pods", trusted))[0] == 200
    with pytest.raises(Exception, match=r"(?i)ssl|alert|closed|reset|disconnect"):
        await bench.get("/pods", old)


async def test_a_client_authority_counts_without_the_one_above_it(bench: Bench) -> None:
    """As Go has it: a cluster's authority may stand below that of a company."""
    await bench.start(bench.settings(mode="AlwaysAllow"))
    other = bench.folder / "other"
    other.mkdir()
    below = Authority(other, "cluster", above=Authority(other, "company"))
    trusted = bench.tls(below.issue("admin", "admin"))
    bench.authority.path.write_bytes(below.path.read_bytes())
    assert (await bench.get("/pods", trusted))[0] == 200


def test_self_signed_pair_is_kept_and_made_anew_when_names_change(tmp_path: Path) -> None:
    folder = str(tmp_path / "pki")
    cert, key = ensure_self_signed(folder, ["node-1"], ["10.0.0.1", "fd00::1"])
    first = Path(cert).read_bytes()
    assert os.stat(key).st_mode & 0o777 == 0o600
    names = x509.load_pem_x509_certificate(first).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node-1"]
    assert [str(entry) for entry in names.get_values_for_type(x509.IPAddress)] == ["10.0.0.1", "fd00::1"]
    ensure_self_signed(folder, ["node-1"], ["10.0.0.1"])
    assert Path(cert).read_bytes() == first
    ensure_self_signed(folder, ["node-1"], ["10.0.0.2"])
    assert Path(cert).read_bytes() != first
    Path(key).write_text("broken")
    ensure_self_signed(folder, ["node-1"], ["10.0.0.2"])
    ServingTls(TlsFiles(cert, key))


async def test_without_files_the_server_makes_its_own(bench: Bench) -> None:
    await bench.start(replace(bench.settings(), tls_cert_file="", tls_key_file=""))
    assert await _served(bench)
    assert (bench.folder / "pki" / "kubelet.crt").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cert_file": "/none"}, "No such file"),
        ({"min_version": "SSLv3"}, "tlsMinVersion"),
        ({"cipher_suites": ("TLS_FOO",)}, "TLS_FOO"),
        ({"client_ca_file": "/none"}, "No such file"),
    ],
    ids=["no certificate", "version", "cipher", "no client CA"],
)
def test_wrong_settings_name_the_cause(tmp_path: Path, change: dict[str, object], message: str) -> None:
    cert, key = ensure_self_signed(str(tmp_path), ["n"], [])
    with pytest.raises(Invalid, match=message):
        ServingTls(replace(TlsFiles(cert, key), **change))  # type: ignore[arg-type]


def test_versions_and_ciphers(tmp_path: Path) -> None:
    cert, key = ensure_self_signed(str(tmp_path), ["n"], [])
    tls = ServingTls(TlsFiles(cert, key, "", "VersionTLS13")).context
    assert tls.minimum_version is ssl.TLSVersion.TLSv1_3
    names = ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256")
    chosen = ServingTls(TlsFiles(cert, key, "", "", names)).context.get_ciphers()
    assert [entry["name"] for entry in chosen if entry["protocol"] != "TLSv1.3"] == ["ECDHE-ECDSA-AES256-GCM-SHA384"]


async def test_one_file_without_the_other(bench: Bench) -> None:
    with pytest.raises(Invalid, match="only one of certificate and key"):
        await bench.start(replace(bench.settings(), tls_key_file=""))


async def test_a_taken_port_says_so(bench: Bench) -> None:
    server = await bench.start(bench.settings())
    taken = replace(bench.settings(), port=server.addresses["kubelet"][1])
    with pytest.raises(Invalid, match=r"cannot listen on 127\.0\.0\.1 port"):
        await Bench(bench.folder, bench.authority).start(taken)


def test_subject_of(tmp_path: Path) -> None:
    cert, _ = Authority(tmp_path, "ca").issue("client", "jane", "dev", "ops")
    der = x509.load_pem_x509_certificate(Path(cert).read_bytes())
    from cryptography.hazmat.primitives.serialization import Encoding

    # What SSLObject.getpeercert() answers, without a handshake; typeshed does not know this function of the ssl module.
    decoded_by_ssl = ssl._ssl._test_decode_cert(cert)  # type: ignore[attr-defined]
    found = subject_of(der.public_bytes(Encoding.DER), decoded_by_ssl)
    assert (found.name, found.uid, found.groups, len(found.fingerprint)) == ("jane", "", ("dev", "ops"), 64)
    assert found.fingerprint == der.fingerprint(hashes.SHA256()).hex()
    decoded = {"subject": ((("commonName", "a"),), (("commonName", "b"), ("1.3.6.1.4.1.57683.2", "u")))}
    assert (subject_of(b"", decoded).name, subject_of(b"", decoded).uid) == ("b", "u")


def _handshake(files: TlsFiles, curve: str) -> bool:
    """Whether a client that knows this curve only is served."""
    served, asked = ServingTls(files).context, ssl.create_default_context()
    asked.check_hostname, asked.verify_mode = False, ssl.CERT_NONE
    asked.set_ecdh_curve(curve)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = served.wrap_bio(there, back, server_side=True), asked.wrap_bio(back, there)
    for _ in range(6):
        try:
            for side in (client, server):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
        except ssl.SSLError:
            return False
    return client.version() is not None


@pytest.mark.parametrize(
    ("curves", "served"),
    [
        pytest.param((), {"prime256v1", "X25519", "secp384r1", "secp521r1"}, id="the library's"),
        pytest.param((24,), {"secp384r1"}, id="one"),
        pytest.param((29,), {"X25519"}, id="another"),
        pytest.param((25, 23, 24), {"prime256v1"}, id="one of several"),
        pytest.param((99_999,), None, id="unknown"),
        pytest.param((23, 0), None, id="one unknown"),
    ],
)
def test_no_curve_is_offered_that_is_not_preferred(
    tmp_path: Path, curves: tuple[int, ...], served: set[str] | None
) -> None:
    files = TlsFiles(*ensure_self_signed(str(tmp_path), ["node-1"], []), curves=curves)
    if served is None:
        with pytest.raises(Invalid, match=r"tlsCurvePreferences .*: not known"):
            ServingTls(files)
        return
    known = ("prime256v1", "X25519", "secp384r1", "secp521r1")
    assert {curve for curve in known if _handshake(files, curve)} == served
