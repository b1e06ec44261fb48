"""Build a PodCertificateRequest, read its answer, and decide when to renew the certificate.

Follows pkg/kubelet/podcertificate/podcertificatemanager.go and certificates.k8s.io/v1 (KEP-4317).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from enum import Enum

from agent.common.model.pods import Pod
from agent.volumes.model.sources import CertificateProjection
from agent.volumes.plan.pem_blocks import certificates
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339

OVERDUE_AFTER = 600.0  # seconds past the time to refresh
# Seconds. A request that is not found for so long was deleted before the watch could show it.
ABANDON_AFTER = 600.0
_JITTER = 300.0  # seconds, so that pods that started together do not renew together
_LINE = 64


class Age(Enum):
    """How old a certificate is; the values are those of kubelet_podcertificate_states."""

    FRESH = "fresh"
    OVERDUE = "overdue_for_refresh"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Issued:
    """`chain` in PEM; times in seconds since the epoch."""

    chain: bytes
    begin_refresh_at: float
    not_after: float
    not_before: float | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The signer's final refusal. `how`: Denied or Failed."""

    how: str
    reason: str
    message: str


def request(
    pod: Pod, source: CertificateProjection, proof: bytes, *, node: str, node_uid: str, account_uid: str
) -> Json:
    """The PodCertificateRequest; `proof` is the PKCS #10 request in DER that the new key has signed."""
    spec: Json = {
        "signerName": source.signer,
        "podName": pod.name,
        "podUID": pod.uid,
        "serviceAccountName": account(pod),
        "serviceAccountUID": account_uid,
        "nodeName": node,
        "nodeUID": node_uid,
        "stubPKCS10Request": base64.b64encode(proof).decode(),
    }
    if source.lifetime:
        spec["maxExpirationSeconds"] = source.lifetime
    if source.annotations:
        spec["unverifiedUserAnnotations"] = dict(source.annotations)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {"generateName": "req-", "namespace": pod.namespace, "ownerReferences": [owner]},
        "spec": spec,
    }


def account(pod: Pod) -> str:
    return str(pod.spec.get("serviceAccountName") or "default")


def answer_of(found: Json) -> Issued | Refused | None:
    """The answer to a request, None while there is none. Raises Invalid for one that an API server would not accept."""
    status = found.get("status") or {}
    for condition in status.get("conditions") or []:
        kind = condition.get("type")
        if kind in ("Denied", "Failed"):
            return Refused(kind, str(condition.get("reason") or ""), str(condition.get("message") or ""))
        if kind == "Issued":
            try:
                chain = clean_chain(status["certificateChain"])
                begins, hint, ends = (status.get("notBefore"), status["beginRefreshAt"], status["notAfter"])
                not_before = parse_rfc3339(begins) if begins else None
                return Issued(chain, parse_rfc3339(hint), parse_rfc3339(ends), not_before)
            except (KeyError, TypeError, ValueError) as error:
                raise Invalid(
                    f"is issued without a chain or its times: {error}",
                    obj=f"PodCertificateRequest {found['metadata'].get('name')}",
                    action="Check the signer that has answered it.",
                ) from error
    return None


def clean_chain(text: str) -> bytes:
    """The certificates alone, without text between the PEM blocks or headers inside them."""
    return b"".join(_certificate(body.partition("\n")[2].encode()) for body in certificates(text) if body.strip())


def refresh_at(issued: Issued, chance: float) -> float:
    """When to request the next one, in seconds since the epoch: at the signer's hint plus jitter.

    `chance` in [0, 1) scales the jitter, which never uses more than half of the time that is left after the hint.
    """
    remaining = max(0.0, issued.not_after - issued.begin_refresh_at)
    return issued.begin_refresh_at + chance * min(_JITTER, remaining / 2)


def seconds_left(issued: Issued, refresh: float, wall: float) -> tuple[float, bool]:
    """Seconds from the answer until `refresh`, and whether this machine's clock (`wall`) agrees with the signer's.

    Where it does not, only the signer's own times count: a machine whose clock is days ahead must not renew over and
    over, and one whose clock is behind must not be late.
    """
    if issued.not_before is None or issued.not_before <= wall < refresh:
        return refresh - wall, wall < refresh
    return refresh - issued.not_before, False


def age(refresh: float, not_after: float, now: float) -> Age:
    """All times on one clock, in seconds; `refresh`: when its successor should have been requested."""
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
