"""Write a self-signed serving certificate and its key: `python -m agent.server.edge.self_signed FOLDER NAMES`.

This is a program of its own because the library that signs would stay in the agent's memory (8 MB) for a task that is
done once a year.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from agent.common.model.addresses import is_address
from agent.server.model import self_signed_files
from nodelib import files

_YEAR = timedelta(days=365)


def make(folder: str, names: Sequence[str], addresses: Sequence[str]) -> None:
    """Write kubelet.crt and kubelet.key into `folder`. Raises OSError."""
    cert_path, key_path = self_signed_files(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    wanted = [x509.DNSName(name) for name in names]
    certificate = _sign(key, names[0], [*wanted, *(x509.IPAddress(ipaddress.ip_address(at)) for at in addresses)])
    os.makedirs(folder, mode=0o750, exist_ok=True)
    form, none = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files.replace(key_path, key.private_bytes(serialization.Encoding.PEM, form, none), 0o600)
    files.replace(cert_path, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


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


def main(argv: Sequence[str]) -> int:
    """Arguments: FOLDER, then DNS names and addresses in any order. On failure: status 1 and the cause on stderr."""
    folder, *served = argv
    addresses = [one for one in served if is_address(one)]
    try:
        make(folder, [one for one in served if one not in addresses], addresses)
    except OSError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
