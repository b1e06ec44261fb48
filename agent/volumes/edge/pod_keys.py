"""Private keys for pods' certificates. Key types: GenerateKeyAndProof of pkg/kubelet/podcertificate.

Imported only when a key is needed: the cryptography library takes 8 MB of memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from nodelib.errors import Invalid

_EXPONENT = 65537

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_MAKERS: dict[str, Callable[[], PrivateKey]] = {
    "RSA3072": lambda: rsa.generate_private_key(_EXPONENT, 3072),
    "RSA4096": lambda: rsa.generate_private_key(_EXPONENT, 4096),
    "ECDSAP256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ECDSAP384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ECDSAP521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "ED25519": ed25519.Ed25519PrivateKey.generate,
}
_HASHES: dict[str, hashes.HashAlgorithm] = {"ECDSAP384": hashes.SHA384(), "ECDSAP521": hashes.SHA512()}


def make_key(kind: str) -> tuple[bytes, bytes]:
    """See PodCertificateRequests.key. Blocking."""
    maker = _MAKERS.get(kind)
    if maker is None:
        raise Invalid(f"unknown key type {kind!r}", step="private key", action=f"Use one of {', '.join(_MAKERS)}.")
    key = maker()
    # Ed25519 hashes by itself; the others sign as Go's crypto/x509 does by default.
    digest: Any = None if kind == "ED25519" else _HASHES.get(kind, hashes.SHA256())
    proof = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, digest)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, proof.public_bytes(serialization.Encoding.DER)
