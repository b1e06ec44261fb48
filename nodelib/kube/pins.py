"""How kubeadm names the authority of a cluster, so that whoever joins it by a token knows which one it is."""

from __future__ import annotations

import hashlib

from cryptography import x509
from cryptography.hazmat.primitives import serialization


def pin_of(certificate: x509.Certificate) -> str:
    """`sha256:` and the hash of its public key, in hex (pubkeypin.Hash of kubeadm, RFC 7469). Raises
    UnsupportedAlgorithm."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    key = certificate.public_key().public_bytes(serialization.Encoding.DER, form)
    return f"sha256:{hashlib.sha256(key).hexdigest()}"
