"""Issues the keys, certificates and kubeconfigs of plan.certificates, and the key for secrets at rest.

Run again, it keeps what is valid and issues again what is missing, expires soon or has other names. All keys are
elliptic (P-256): they are made in microseconds, and service account tokens are then ES256, which every verifier in the
suites accepts. Private keys and kubeconfigs have mode 0600.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import ipaddress
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controlplane.cluster.model import Cluster
from controlplane.cluster.plan import certificates as plan
from controlplane.machine.edge import files
from nodelib.files import bytes_of
from nodelib.kube.access import ClusterAccess, render_kubeconfig

_CA_DAYS, _LEAF_DAYS = 3650, 365
_LARGEST = 1 << 20  # bytes of a certificate
_BACKDATE = datetime.timedelta(minutes=5)  # the clocks of machines that verify may be slow
_EXTENDED = {
    "server": [ExtendedKeyUsageOID.SERVER_AUTH],
    "client": [ExtendedKeyUsageOID.CLIENT_AUTH],
    "peer": [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def ensure(cluster: Cluster, now: float) -> dict[str, str]:
    """Issue what is missing or must be renewed at `now` (Unix seconds). Returns path -> reason for what was issued."""
    made: dict[str, str] = {}
    pairs: dict[str, Pair] = {}
    for wanted in plan.certificates(cluster):
        issuer = pairs.get(wanted.issuer)
        with _place(cluster, wanted.path) as path:
            existing = _load(path)
        reason = plan.must_issue(wanted, _facts(existing), _key_id(issuer), now)
        if not reason and existing is not None:
            pairs[wanted.path] = existing
            continue
        pairs[wanted.path] = _issue(wanted, issuer, now)
        with _place(cluster, wanted.path) as path:
            _store(path, pairs[wanted.path])
        made[wanted.path] = reason
    made |= _service_account_key(cluster)
    made |= _encryption_config(cluster)
    made |= _authentication_config(cluster)
    authority = _pem(pairs[f"{cluster.pki_dir}/ca"].certificate)
    for node in cluster.nodes:
        with _place(cluster, f"{cluster.node_dir(node.name)}/kubernetes/pki/ca.crt") as path:
            _private(path, authority)
    for config in plan.kubeconfigs(cluster):
        text = kubeconfig(config, authority, pairs[config.certificate])
        with _place(cluster, config.path) as path:
            changed = files.write_if_changed(path, text)
        if changed:
            made.setdefault(config.path, "certificate or server changed")
    return made


@contextlib.contextmanager
def _place(cluster: Cluster, path: str) -> Iterator[str]:
    """Where a file is to be read and written: in the folders of a node without following the node's links."""
    own = next((one for node in cluster.nodes if path.startswith(one := f"{cluster.node_dir(node.name)}/")), "")
    if not own:
        yield path
        return
    folder, name = os.path.split(path.removeprefix(own))
    with files.inside(own, folder) as there:
        if os.path.islink(f"{there}/{name}"):
            os.unlink(f"{there}/{name}")
        yield f"{there}/{name}"


def kubeconfig(config: plan.Kubeconfig, authority: bytes, pair: Pair) -> str:
    """A kubeconfig, with certificates and key embedded unless their reader has the files."""
    access = ClusterAccess(config.server, ca_data=authority)
    if config.seen_at:
        access = replace(access, cert_file=f"{config.seen_at}.crt", key_file=f"{config.seen_at}.key")
    else:
        access = replace(access, cert_data=_pem(pair.certificate), key_data=_key_pem(pair.key))
    return render_kubeconfig(access, cluster=config.cluster, user=config.user)


def expiry(path: str) -> datetime.datetime | None:
    """When the certificate in the file expires; None if it is no certificate."""
    try:
        return x509.load_pem_x509_certificate(bytes_of(path, _LARGEST, 0)).not_valid_after_utc
    except (OSError, ValueError):
        return None


def _issue(wanted: plan.Certificate, issuer: Pair | None, now: float) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(wanted.common_name, wanted.organization)
    authority = wanted.usage == "ca"
    start = datetime.datetime.fromtimestamp(now, datetime.UTC)
    signer = key if issuer is None else issuer.key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start - _BACKDATE)
        .not_valid_after(start + datetime.timedelta(days=_CA_DAYS if authority else _LEAF_DAYS))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(_key_usage(authority), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not authority:
        builder = builder.add_extension(x509.ExtendedKeyUsage(_EXTENDED[wanted.usage]), critical=False)
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in wanted.dns]
    names += [x509.IPAddress(ipaddress.ip_address(address)) for address in wanted.addresses]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return Pair(builder.sign(signer, hashes.SHA256()), key)


def _key_usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=authority,
        crl_sign=authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str, organization: str) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)] if organization else []
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _load(path: str) -> Pair | None:
    # An unreadable file is treated as a missing one.
    try:
        certificate = x509.load_pem_x509_certificate(bytes_of(f"{path}.crt", _LARGEST, 0))
        key = serialization.load_pem_private_key(bytes_of(f"{path}.key", _LARGEST, 0), None)
    except (OSError, ValueError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        return None
    return Pair(certificate, key)


def _facts(pair: Pair | None) -> plan.Existing | None:
    if pair is None:
        return None
    certificate = pair.certificate
    dns: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    with contextlib.suppress(x509.ExtensionNotFound):
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns = frozenset(names.get_values_for_type(x509.DNSName))
        addresses = frozenset(str(address) for address in names.get_values_for_type(x509.IPAddress))
    issuer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    return plan.Existing(
        issuer_key=(issuer or b"").hex(),
        common_name=_attribute(certificate, NameOID.COMMON_NAME),
        organization=_attribute(certificate, NameOID.ORGANIZATION_NAME),
        dns=dns,
        addresses=addresses,
        not_after=certificate.not_valid_after_utc.timestamp(),
    )


def _attribute(certificate: x509.Certificate, oid: x509.ObjectIdentifier) -> str:
    values = certificate.subject.get_attributes_for_oid(oid)
    return str(values[0].value) if values else ""


def _key_id(pair: Pair | None) -> str:
    return "" if pair is None else x509.SubjectKeyIdentifier.from_public_key(pair.key.public_key()).digest.hex()


def _service_account_key(cluster: Cluster) -> dict[str, str]:
    path = plan.service_account_key(cluster)
    if os.path.exists(f"{path}.key") and os.path.exists(f"{path}.pub"):
        return {}
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    files.write(f"{path}.key", _key_pem(key))
    files.write(f"{path}.pub", public, 0o644)
    return {path: "missing"}


def _encryption_config(cluster: Cluster) -> dict[str, str]:
    """Secrets are encrypted in etcd with a key that never changes (a new key could not decrypt the old Secrets)."""
    path = f"{cluster.pki_dir}/encryption.json"
    if os.path.exists(path):
        return {}
    key = {"name": "key1", "secret": _b64(os.urandom(32))}
    document = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": [{"secretbox": {"keys": [key]}}, {"identity": {}}]}],
    }
    files.write(path, json.dumps(document, indent=1))
    return {path: "missing"}


def _authentication_config(cluster: Cluster) -> dict[str, str]:
    """Issuers of OIDC tokens: none at first. Users may edit the file, which the API server watches.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#using-authentication-configuration
    """
    path = plan.authentication_config(cluster)
    if os.path.exists(path):
        return {}
    document = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": []}
    files.write(path, json.dumps(document, indent=1))
    return {path: "missing"}


def _private(path: str, data: bytes) -> None:
    """Write it for root only; an older `up` made it readable for all."""
    files.write_if_changed(path, data)
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fchmod(handle, 0o600)
    finally:
        os.close(handle)


def _store(path: str, pair: Pair) -> None:
    files.write(f"{path}.key", _key_pem(pair.key))
    files.write(f"{path}.crt", _pem(pair.certificate), 0o644)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
