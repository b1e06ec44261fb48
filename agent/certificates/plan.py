"""When a node certificate is renewed, the contents of the request, and the meaning of its answer.

Follows client-go's util/certificate (certificate_manager.go) and pkg/kubelet/certificate/kubelet.go.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from agent.certificates.model import Leaf, Pair, Template
from nodelib.json_values import Json

_USAGES = ("digital signature",)  # "key encipherment" is for RSA keys only


class Signer(StrEnum):
    """The signer of a request (certificates.k8s.io signerName)."""

    CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
    SERVING = "kubernetes.io/kubelet-serving"


_PURPOSE = {Signer.CLIENT: "client auth", Signer.SERVING: "server auth"}


@dataclass(frozen=True, slots=True)
class Refusal:
    """The final refusal of an approver or a signer. `how` is Denied or Failed."""

    how: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Pending:
    """Why there is no (new) certificate yet, in words, and whether an administrator has to approve the request."""

    message: str
    needs_approval: bool = False


def client_template(node: str) -> Template:
    return Template(f"system:node:{node}", ("system:nodes",))


def serving_template(node: str, addresses: Iterable[Mapping[str, str]]) -> Template | None:
    """The serving certificate for a node with these status.addresses, None while it has no IP address.

    The signer only accepts SANs that the Node object has (pkg/apis/certificates/helpers.go).
    """
    names: set[str] = set()
    ips: set[str] = set()
    for entry in addresses:
        text, kind = entry.get("address", ""), entry.get("type", "")
        ip = _ip(text)
        if ip and kind in ("Hostname", "InternalIP", "ExternalIP"):
            ips.add(ip)
        elif text and kind in ("Hostname", "InternalDNS", "ExternalDNS"):
            names.add(text)
    if not ips:
        return None
    return Template(f"system:node:{node}", ("system:nodes",), tuple(sorted(names)), tuple(sorted(ips)))


def satisfies(leaf: Leaf, wanted: Template) -> bool:
    """Whether a certificate covers everything that is wanted; it may cover more."""
    has = leaf.subject
    return (
        has.common_name == wanted.common_name
        and set(wanted.organizations) <= set(has.organizations)
        and set(wanted.dns_names) <= set(has.dns_names)
        and set(wanted.addresses) <= set(has.addresses)
    )


def rotate_at(leaf: Leaf, chance: float, since: float = 0.0) -> float:
    """When to request the next one: after 70 to 90 % of its lifetime; `chance` in [0, 1) spreads the nodes.

    The lifetime begins at `since`, when it was stored here: signers backdate certificates by five minutes, so one that
    is valid for ten minutes would otherwise be past its 70 % at once.
    """
    begin = min(max(leaf.not_before, since), leaf.not_after)
    return begin + (leaf.not_after - begin) * (0.7 + 0.2 * chance)


def seconds_left(pair: Pair, chance: float, wall: float) -> float:
    """Seconds until the next one is to be requested, for a certificate that has just been stored here.

    Where this machine's clock (`wall`) does not agree with the signer's, only the signer's times count.
    """
    if pair.leaf.not_before <= wall <= pair.leaf.not_after:
        return rotate_at(pair.leaf, chance, pair.since) - wall
    return rotate_at(pair.leaf, chance) - pair.leaf.not_before


def expired(leaf: Leaf, now: float) -> bool:
    return now > leaf.not_after


def request(signer: Signer, pem: bytes, *, name: str = "") -> Json:
    """The CertificateSigningRequest; without a name the server generates one."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name} if name else {"generateName": "csr-"},
        "spec": {
            "request": base64.b64encode(pem).decode(),
            "signerName": str(signer),
            "usages": [*_USAGES, _PURPOSE[signer]],
        },
    }


def bootstrap_name(public_key: bytes, node: str) -> str:
    """The name of a node's first request: the same for the same key, so that a restart does not request it twice."""
    return "node-csr-" + hashlib.sha256(public_key + node.encode()).hexdigest()[:40]


def verdict(found: Json) -> bytes | Refusal | None:
    """The certificate chain in PEM, a refusal, or None while the request is not answered."""
    status = found.get("status") or {}
    approved = False
    for condition in status.get("conditions") or []:
        kind = condition.get("type")
        if kind in ("Denied", "Failed"):
            return Refusal(kind, str(condition.get("reason") or ""), str(condition.get("message") or ""))
        approved = approved or kind == "Approved"
    chain = status.get("certificate")
    return base64.b64decode(chain) if approved and chain else None


def pending(found: Json, name: str) -> Pending:
    """What an unanswered request waits for."""
    conditions = (found.get("status") or {}).get("conditions") or []
    if any(condition.get("type") == "Approved" for condition in conditions):
        message = f"CertificateSigningRequest {name} is approved and waits for its signer (the controller manager)"
        return Pending(message)
    message = f"CertificateSigningRequest {name} waits for approval: kubectl certificate approve {name}"
    return Pending(message, needs_approval=True)


def clock_problem(leaf: Leaf, now: float) -> str:
    """Why a certificate that was just issued is not valid on this machine, "" when it is: the clocks disagree."""
    if now < leaf.not_before:
        return (
            f"it is valid only in {leaf.not_before - now:.0f} s: this machine's clock is behind the cluster's."
            " Set it (timedatectl, chronyc tracking)"
        )
    if now > leaf.not_after:
        return (
            f"it ended {now - leaf.not_after:.0f} s ago: this machine's clock is ahead of the cluster's."
            " Set it (timedatectl, chronyc tracking)"
        )
    return ""


def _ip(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return ""
