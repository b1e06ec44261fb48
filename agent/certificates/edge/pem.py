"""Read a node's certificate and key files, and sign requests with the key.

Import it only where it is needed: the library behind it takes 8 MB of memory, and a node whose certificate stays valid
never needs it.
"""

from __future__ import annotations

import ipaddress

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.certificates.model import KeyAndRequest, Leaf, Template
from nodelib.errors import Invalid


def is_private_key(pem: bytes) -> bool:
    """Whether the PEM text holds a private key that can be loaded."""
    try:
        serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return False
    return True


def make_request(wanted: Template, key_pem: bytes = b"") -> KeyAndRequest:
    """A request for `wanted`, signed with `key_pem` or with a new ECDSA P-256 key."""
    key_pem = key_pem or new_key()
    key = serialization.load_pem_private_key(key_pem, None)
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in wanted.organizations),
            x509.NameAttribute(NameOID.COMMON_NAME, wanted.common_name),
        ]
    )
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    sans: list[x509.GeneralName] = [x509.DNSName(name) for name in wanted.dns_names]
    sans += [x509.IPAddress(ipaddress.ip_address(text)) for text in wanted.addresses]
    if sans:
        builder = builder.add_extension(x509.SubjectAlternativeName(sans), critical=False)
    signed = builder.sign(key, hashes.SHA256())  # type: ignore[arg-type]
    return KeyAndRequest(key_pem, signed.public_bytes(serialization.Encoding.PEM))


def public_key(key_pem: bytes) -> bytes:
    """The public key in DER."""
    key = serialization.load_pem_private_key(key_pem, None)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_key().public_bytes(serialization.Encoding.DER, form)


def read_leaf(pem: bytes) -> Leaf:
    """The contents of the first certificate. Raises ValueError."""
    certificate = x509.load_pem_x509_certificates(pem)[0]
    dns: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    try:
        sans = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        dns = tuple(sans.get_values_for_type(x509.DNSName))
        addresses = tuple(str(entry) for entry in sans.get_values_for_type(x509.IPAddress))
    except x509.ExtensionNotFound:
        pass
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    subject = Template(
        str(names[-1].value) if names else "", tuple(str(entry.value) for entry in groups), dns, addresses
    )
    return Leaf(subject, certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp())


def joined(chain: bytes, key: bytes, path: str) -> bytes:
    """Certificates and key in one PEM text, each once; both arguments may hold both. Raises Invalid with `path`."""
    form = serialization.PrivateFormat.TraditionalOpenSSL  # "EC PRIVATE KEY", as upstream writes it
    try:
        certificates = x509.load_pem_x509_certificates(chain)
        own = serialization.load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Invalid(str(error), obj=path, step="store the certificate") from error
    return b"".join(
        (
            *(certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates),
            own.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()),
        )
    )


def checked(pem: bytes, path: str) -> Leaf:
    """The contents of the certificate if the key belongs to it. Raises Invalid with `path`."""
    try:
        leaf = read_leaf(pem)
        key = serialization.load_pem_private_key(pem, None)
        certificate = x509.load_pem_x509_certificates(pem)[0]
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Invalid(
            str(error),
            obj=path,
            step="read certificate and key",
            action="Remove the file: with --bootstrap-kubeconfig the node asks for a new certificate.",
        ) from error
    if key.public_key() != certificate.public_key():
        raise Invalid(
            "the key does not belong to the certificate",
            obj=path,
            step="read certificate and key",
            action="Remove the file: with --bootstrap-kubeconfig the node asks for a new certificate.",
        )
    return leaf


def new_key() -> bytes:
    """An ECDSA P-256 key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    form = serialization.PrivateFormat.TraditionalOpenSSL  # "EC PRIVATE KEY", as upstream writes it
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
