"""When a service account token is renewed (pkg/kubelet/token/token_manager.go): at 80 % of its lifetime or after 24 h.

Jitter keeps pods that were started together from renewing together. When a renewal fails, the old token is used until
it expires.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from agent.common.model.pods import Pod
from agent.volumes.model.sources import TokenRequest
from nodelib.json_values import Json
from nodelib.kube.times import parse_rfc3339

JITTER = 10.0  # seconds
_LONGEST_USE = 24 * 3600.0  # seconds
_RETRY = 30.0  # seconds
_LONGEST_WAIT = 3600.0  # seconds


@dataclass(frozen=True, slots=True)
class Token:
    """A token and its times in steady seconds (nodelib/clock.py); `expiration` is the API server's own text."""

    text: str = field(repr=False)
    renew_at: float
    expires_at: float
    expiration: str = ""


def account_of(pod: Pod) -> str:
    return str(pod.spec.get("serviceAccountName") or "default")


def request_body(pod: Pod, request: TokenRequest) -> Json:
    """The TokenRequest object to post, bound to the pod."""
    spec: Json = {
        "expirationSeconds": request.expiration,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
        "audiences": [request.audience] if request.audience else [],
    }
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def issued(answer: Json, request: TokenRequest, jitter: float, begun: float | None = None) -> Token:
    """The token in the API server's answer, whose lifetime may differ from the request's; `jitter` in seconds.

    Its times count from `begun`, when it was requested (default: when the server says that it was issued): so it is
    renewed in time whatever this machine's clock is set to, then or later.
    """
    status = answer["status"]
    lifetime = float((answer.get("spec") or {}).get("expirationSeconds") or request.expiration)
    expires = parse_rfc3339(status["expirationTimestamp"]) if begun is None else begun + lifetime
    renew = min(expires - 0.2 * lifetime, expires - lifetime + _LONGEST_USE) - jitter
    return Token(str(status["token"]), renew, expires, str(status["expirationTimestamp"]))


def is_fresh(token: Token | None, now: float) -> bool:
    return token is not None and now < token.renew_at


def postponed(token: Token, now: float) -> Token | None:
    """The same token after a failed renewal, to be tried again soon; None once it has expired."""
    if now >= token.expires_at:
        return None
    return replace(token, renew_at=min(now + _RETRY, token.expires_at))


def seconds_until_renewal(renewals: list[float], now: float) -> float:
    """Seconds until the first of these renewals, at most an hour."""
    return max(0.0, min(min(renewals, default=float("inf")) - now, _LONGEST_WAIT))
