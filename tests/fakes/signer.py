"""A signer of PodCertificateRequests: answers that the API server's validation lets pass."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from nodelib.json_values import Json


class Signer:
    """Signs whatever is asked; certificates are numbered by their common name: "1", "2" …"""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._count = 0

    def issued(self, request: Json, now: float) -> Json:
        """The status of an issued `request`: valid for as long as it asks, to be refreshed half way."""
        spec = request["spec"]
        proof = x509.load_der_x509_csr(base64.b64decode(spec["stubPKCS10Request"]))
        assert proof.is_signature_valid
        begin = datetime.fromtimestamp(int(now), UTC)
        end = begin + timedelta(seconds=spec.get("maxExpirationSeconds", 86400))
        self._count += 1
        certificate = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, str(self._count))]))
            .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "signer")]))
            .public_key(proof.public_key())
            .serial_number(self._count)
            .not_valid_before(begin)
            .not_valid_after(end)
            .sign(self._key, hashes.SHA256())
        )
        return {
            "conditions": [condition("Issued", "Signed", "", now)],
            "certificateChain": certificate.public_bytes(serialization.Encoding.PEM).decode(),
            "notBefore": _shown(begin),
            "beginRefreshAt": _shown(begin + (end - begin) / 2),
            "notAfter": _shown(end),
        }


def refused(how: str, reason: str, message: str, now: float) -> Json:
    """The status of a request that is Denied or Failed."""
    return {"conditions": [condition(how, reason, message, now)]}


def condition(kind: str, reason: str, message: str, now: float) -> Json:
    at = _shown(datetime.fromtimestamp(int(now), UTC))
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": at}


def matches(key: bytes, chain: bytes) -> bool:
    """Whether the chain's first certificate is for the key."""
    public = serialization.load_pem_private_key(key, None).public_key()
    return bool(x509.load_pem_x509_certificates(chain)[0].public_key() == public)


def number(chain: bytes) -> str:
    """The common name of the chain's first certificate."""
    return str(
        x509.load_pem_x509_certificates(chain)[0].subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
    )


def _shown(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
