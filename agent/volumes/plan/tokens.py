"""When a service account token is renewed (pkg/kubelet/token/token_manager.go): at 80 % of its lifetime or after 24 h.

With jitter, so that pods that were started together do not renew together; when a renewal fails, the old token serves
until it expires.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agent.common.model.pods import Json, Pod
from agent.volumes.model.sources import TokenNeed
from nodelib.kube.times import parse_rfc3339

JITTER = 10.0  # seconds
_LONGEST_USE = 24 * 3600.0  # seconds
_RETRY = 30.0  # seconds
_LONGEST_LOOK = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its times, in wall seconds."""

    text: str
    renew_at: float
    expires_at: float


def account_of(pod: Pod) -> str:
    return str(pod.spec.get("serviceAccountName") or "default")


def request(pod: Pod, need: TokenNeed) -> Json:
    """The TokenRequest, bound to the pod."""
    spec: Json = {
        "expirationSeconds": need.expiration,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
        "audiences": [need.audience] if need.audience else [],
    }
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def issued(answer: Json, need: TokenNeed, jitter: float) -> Token:
    """What the API server gave, which may be another lifetime than was asked for; `jitter` in seconds."""
    status = answer["status"]
    expires = parse_rfc3339(status["expirationTimestamp"])
    lifetime = float((answer.get("spec") or {}).get("expirationSeconds") or need.expiration)
    renew = min(expires - 0.2 * lifetime, expires - lifetime + _LONGEST_USE) - jitter
    return Token(str(status["token"]), renew, expires)


def is_fresh(token: Token | None, now: float) -> bool:
    return token is not None and now < token.renew_at


def postponed(token: Token, now: float) -> Token | None:
    """The same token after a renewal that failed; None: it has expired."""
    if now >= token.expires_at:
        return None
    return replace(token, renew_at=min(now + _RETRY, token.expires_at))


def next_look(renewals: list[float], now: float) -> float:
    """Seconds until the first renewal, an hour when there is none sooner."""
    return max(0.0, min(min(renewals, default=float("inf")) - now, _LONGEST_LOOK))
