"""What a PodCertificateRequest says, and what its answer means.

Follows pkg/kubelet/podcertificate/podcertificatemanager.go and certificates.k8s.io/v1 (KEP-4317).
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from enum import Enum

from agent.common.model.pods import Json, Pod
from agent.volumes.model.sources import CertificateNeed
from nodelib.errors import Invalid
from nodelib.kube.times import parse_rfc3339

OVERDUE_AFTER = 600.0  # seconds past the time to refresh
# A request that its maker cannot find for so long was deleted before the watch could show it.
ABANDON_AFTER = 600.0
_JITTER = 300.0  # seconds: pods that started together need not ask together
_BLOCK = re.compile(rb"-----BEGIN ([^\n]*?)-----\s*?\n(.*?)-----END \1-----", re.DOTALL)
_LINE = 64


class Age(Enum):
    """How far a certificate is in its life; values as kubelet_podcertificate_states shows them."""

    FRESH = "fresh"
    OVERDUE = "overdue_for_refresh"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Issued:
    """`chain` in PEM; times in seconds since the epoch."""

    chain: bytes
    begin_refresh_at: float
    not_after: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The signer's last word. `how`: Denied or Failed."""

    how: str
    reason: str
    message: str


def request(pod: Pod, need: CertificateNeed, proof: bytes, *, node: str, node_uid: str, account_uid: str) -> Json:
    """The PodCertificateRequest; `proof` is the PKCS #10 request in DER that the new key has signed."""
    spec: Json = {
        "signerName": need.signer,
        "podName": pod.name,
        "podUID": pod.uid,
        "serviceAccountName": account(pod),
        "serviceAccountUID": account_uid,
        "nodeName": node,
        "nodeUID": node_uid,
        "stubPKCS10Request": base64.b64encode(proof).decode(),
    }
    if need.lifetime:
        spec["maxExpirationSeconds"] = need.lifetime
    if need.annotations:
        spec["unverifiedUserAnnotations"] = dict(need.annotations)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {"generateName": "req-", "namespace": pod.namespace, "ownerReferences": [owner]},
        "spec": spec,
    }


def account(pod: Pod) -> str:
    return str(pod.spec.get("serviceAccountName") or "default")


def verdict(found: Json) -> Issued | Refused | None:
    """What has come of a request; None while nothing has. Raises Invalid for an answer that no API server lets pass."""
    status = found.get("status") or {}
    for condition in status.get("conditions") or []:
        kind = condition.get("type")
        if kind in ("Denied", "Failed"):
            return Refused(kind, str(condition.get("reason") or ""), str(condition.get("message") or ""))
        if kind == "Issued":
            try:
                chain = clean_chain(status["certificateChain"])
                return Issued(chain, parse_rfc3339(status["beginRefreshAt"]), parse_rfc3339(status["notAfter"]))
            except (KeyError, TypeError, ValueError) as error:
                raise Invalid(
                    f"is issued without a chain or its times: {error}",
                    obj=f"PodCertificateRequest {found['metadata'].get('name')}",
                    action="See the signer that has answered it.",
                ) from error
    return None


def clean_chain(text: str) -> bytes:
    """The certificates alone: what stands between the PEM blocks, and headers in them, are left out."""
    return b"".join(_certificate(body) for _, body in _BLOCK.findall(text.encode()))


def refresh_at(issued: Issued, chance: float) -> float:
    """When to ask for the next one; `chance` in [0, 1). Never later than half way from the signer's hint to the end."""
    spare = max(0.0, issued.not_after - issued.begin_refresh_at)
    return issued.begin_refresh_at + chance * min(_JITTER, spare / 2)


def age(refresh: float, not_after: float, now: float) -> Age:
    """`refresh`: when its successor was to be asked for."""
    if now > not_after:
        return Age.EXPIRED
    return Age.OVERDUE if now > refresh + OVERDUE_AFTER else Age.FRESH


def _certificate(body: bytes) -> bytes:
    # RFC 1421 headers end at an empty line; base64 has no colon.
    lines = [line.strip() for line in body.splitlines()]
    if any(b":" in line for line in lines):
        lines = lines[lines.index(b"") :] if b"" in lines else []
    coded = base64.b64encode(base64.b64decode(b"".join(lines), validate=True))
    rows = [coded[at : at + _LINE] for at in range(0, len(coded), _LINE)]
    return b"\n".join((b"-----BEGIN CERTIFICATE-----", *rows, b"-----END CERTIFICATE-----", b""))
