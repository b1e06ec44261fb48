"""The serving certificate: files, read again when they change, or a self-signed pair under cert-dir."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agent.model.serving import ClientSubject
from nodelib.errors import Invalid

_YEAR = timedelta(days=365)
_UID = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")


def ensure_self_signed(folder: str, names: Sequence[str], addresses: Sequence[str]) -> tuple[str, str]:
    """Paths of kubelet.crt and kubelet.key in `folder`, made (or made anew) when they do not serve these names.

    As upstream's initialization of an unconfigured serving certificate, which however keeps an
    expired one. Raises Invalid when the folder cannot be written.
    """
    cert_path, key_path = os.path.join(folder, "kubelet.crt"), os.path.join(folder, "kubelet.key")
    if _serves(cert_path, key_path, names, addresses):
        return cert_path, key_path
    key = ec.generate_private_key(ec.SECP256R1())
    wanted = [x509.DNSName(name) for name in names]
    certificate = _sign(key, names[0], [*wanted, *(x509.IPAddress(ipaddress.ip_address(at)) for at in addresses)])
    try:
        os.makedirs(folder, mode=0o750, exist_ok=True)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _write(key_path, pem, 0o600)
        _write(cert_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)
    except OSError as error:
        raise Invalid(
            str(error),
            obj=folder,
            step="write the self-signed serving certificate",
            action="Make the folder writable or set --tls-cert-file and --tls-private-key-file.",
        ) from error
    return cert_path, key_path


def _sign(key: ec.EllipticCurvePrivateKey, name: str, sans: list[x509.GeneralName]) -> x509.Certificate:
    now = datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name}@{int(now.timestamp())}"[:64])])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _YEAR)
        .add_extension(x509.SubjectAlternativeName(sans), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    )
    return builder.sign(key, hashes.SHA256())


def _serves(cert_path: str, key_path: str, names: Sequence[str], addresses: Sequence[str]) -> bool:
    try:
        with open(cert_path, "rb") as file:
            certificate = x509.load_pem_x509_certificate(file.read())
        with open(key_path, "rb") as file:
            key = serialization.load_pem_private_key(file.read(), None)
        sans = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, UnsupportedAlgorithm, x509.ExtensionNotFound):
        return False
    has_names = set(names) <= set(sans.get_values_for_type(x509.DNSName))
    has_addresses = set(addresses) <= {str(at) for at in sans.get_values_for_type(x509.IPAddress)}
    lasts = certificate.not_valid_after_utc - datetime.now(UTC) > timedelta(days=30)
    return has_names and has_addresses and lasts and key.public_key() == certificate.public_key()


def _write(path: str, data: bytes, mode: int) -> None:
    staged = f"{path}.new"
    handle = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, mode)
        file.write(data)
    os.replace(staged, path)


def subject_of(der: bytes) -> ClientSubject:
    """Common name, UID and organizations of a client certificate that TLS has verified."""
    certificate = x509.load_der_x509_certificate(der)
    subject = certificate.subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    uids = subject.get_attributes_for_oid(_UID)
    groups = tuple(str(entry.value) for entry in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME))
    fingerprint = certificate.fingerprint(hashes.SHA256()).hex()
    # Go's pkix.Name keeps the last common name of a subject.
    name = str(names[-1].value) if names else ""
    uid = str(uids[0].value) if len(uids) == 1 else ""
    return ClientSubject(name, uid, groups, fingerprint)
