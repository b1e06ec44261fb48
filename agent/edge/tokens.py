"""Service account tokens bound to pods: TokenRequest, kept while the pod lives, renewed in time.

Rotation follows pkg/kubelet/token/token_manager.go: at 80 % of the lifetime or after 24 h, with
jitter; when renewal fails, the old token serves until it expires.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass

from agent.model.materials import Json, TokenNeed
from agent.model.pods import Pod
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.times import format_rfc3339, parse_rfc3339

log = logging.getLogger(__name__)

_LONGEST_USE = 24 * 3600.0  # seconds
_JITTER = 10.0  # seconds
_RETRY = 30.0  # seconds
# NodeRestriction may learn of a pod a moment after this node does: seconds between attempts.
_IMPATIENT = (0.02, 0.05, 0.1, 0.2, 0.4)


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    renew_at: float
    expires_at: float


class TokenCache:
    """Tokens by pod UID. `due(now)` tells whose pods want a renewal."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: dict[tuple[str, str, TokenNeed], _Token] = {}

    async def get(self, pod: Pod, need: TokenNeed) -> str:
        """A valid token. Raises Temporary when there is none and the API server gives none."""
        account = _account(pod)
        key = (pod.uid, account, need)
        held = self._tokens.get(key)
        now = self._clock.now()
        if held is not None and now < held.renew_at:
            return held.text
        try:
            fresh = await self._request(pod, account, need)
        except NodewrightError as error:
            if held is None or now >= held.expires_at:
                raise _failed(pod, account, error) from error
            log.warning("pod %s: token of %s not renewed: %s", pod.full_name, account, error)
            self._tokens[key] = _Token(held.text, min(now + _RETRY, held.expires_at), held.expires_at)
            return held.text
        self._tokens[key] = fresh
        return fresh.text

    async def status(self, pod: Pod, need: TokenNeed) -> Json:
        """get() as the TokenRequestStatus that a CSI driver is given."""
        text = await self.get(pod, need)
        held = self._tokens.get((pod.uid, _account(pod), need))
        expires = held.expires_at if held is not None else self._clock.now()
        return {"expirationTimestamp": format_rfc3339(expires), "token": text}

    def due(self) -> set[str]:
        """UIDs with a token that wants renewal now."""
        now = self._clock.now()
        return {uid for (uid, _, _), token in self._tokens.items() if now >= token.renew_at}

    def next_due(self) -> float:
        """Seconds until the first renewal, an hour when there is nothing to renew."""
        first = min((token.renew_at for token in self._tokens.values()), default=float("inf"))
        return max(0.0, min(first - self._clock.now(), 3600.0))

    def forget(self, uid: str) -> None:
        self._tokens = {key: token for key, token in self._tokens.items() if key[0] != uid}

    async def _request(self, pod: Pod, account: str, need: TokenNeed) -> _Token:
        spec: dict[str, object] = {
            "expirationSeconds": need.expiration,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
            "audiences": [need.audience] if need.audience else [],
        }
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{account}/token"
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        for pause in (*_IMPATIENT, None):
            try:
                answer = await self._client.post(path, body)
                break
            except ApiError as error:
                if pause is None or not (error.is_forbidden or error.is_not_found):
                    raise
            await self._clock.sleep(pause)
        status = answer["status"]
        expires = parse_rfc3339(status["expirationTimestamp"])
        # The server may have given another lifetime than asked for.
        lifetime = float((answer.get("spec") or {}).get("expirationSeconds") or need.expiration)
        renew = min(expires - 0.2 * lifetime, expires - lifetime + _LONGEST_USE) - random.uniform(0, _JITTER)
        return _Token(str(status["token"]), renew, expires)


def _account(pod: Pod) -> str:
    return str(pod.spec.get("serviceAccountName") or "default")


def _failed(pod: Pod, account: str, error: NodewrightError) -> Temporary:
    return Temporary(
        f"failed to fetch token: {error.message}",
        obj=f"pod {pod.full_name}",
        step=f"token of service account {pod.namespace}/{account}",
        action="See that the service account exists; it is tried again.",
        retry_after=2,
    )
