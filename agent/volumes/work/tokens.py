"""Service account tokens bound to pods: TokenRequest, kept while the pod lives, renewed when plan/tokens.py says so."""

from __future__ import annotations

import logging
import random

from agent.common.model.pods import Json, Pod
from agent.volumes.model.sources import TokenNeed
from agent.volumes.plan import tokens as plan
from agent.volumes.plan.tokens import Token
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.times import format_rfc3339

log = logging.getLogger(__name__)

# NodeRestriction may learn of a pod a moment after this node does: seconds between attempts.
_IMPATIENT = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.4)


class TokenCache:
    """Tokens by pod UID. `due(now)` tells whose pods want a renewal."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: dict[tuple[str, str, TokenNeed], Token] = {}

    async def get(self, pod: Pod, need: TokenNeed) -> str:
        """A valid token. Raises Temporary when there is none and the API server gives none."""
        account = plan.account_of(pod)
        key = (pod.uid, account, need)
        held = self._tokens.get(key)
        now = self._clock.now()
        if held is not None and plan.is_fresh(held, now):
            return held.text
        try:
            fresh = await self._request(pod, account, need)
        except NodewrightError as error:
            old = plan.postponed(held, now) if held is not None else None
            if old is None:
                raise _failed(pod, account, error) from error
            log.warning("pod %s: token of %s not renewed: %s", pod.full_name, account, error)
            self._tokens[key] = old
            return old.text
        self._tokens[key] = fresh
        return fresh.text

    async def status(self, pod: Pod, need: TokenNeed) -> Json:
        """get() as the TokenRequestStatus that a CSI driver is given."""
        text = await self.get(pod, need)
        held = self._tokens.get((pod.uid, plan.account_of(pod), need))
        expires = held.expires_at if held is not None else self._clock.now()
        return {"expirationTimestamp": format_rfc3339(expires), "token": text}

    def due(self) -> set[str]:
        """UIDs with a token that wants renewal now."""
        now = self._clock.now()
        return {uid for (uid, _, _), token in self._tokens.items() if not plan.is_fresh(token, now)}

    def next_due(self) -> float:
        """Seconds until the first renewal, an hour when there is nothing to renew."""
        return plan.next_look([token.renew_at for token in self._tokens.values()], self._clock.now())

    def forget(self, uid: str) -> None:
        self._tokens = {key: token for key, token in self._tokens.items() if key[0] != uid}

    async def _request(self, pod: Pod, account: str, need: TokenNeed) -> Token:
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{account}/token"
        body = plan.request(pod, need)
        for pause in (*_IMPATIENT, None):
            try:
                answer = await self._client.post(path, body)
                break
            except ApiError as error:
                if pause is None or not (error.is_forbidden or error.is_not_found):
                    raise
            await self._clock.sleep(pause)
        return plan.issued(answer, need, random.uniform(0, plan.JITTER))


def _failed(pod: Pod, account: str, error: NodewrightError) -> Temporary:
    return Temporary(
        f"failed to fetch token: {error.message}",
        obj=f"pod {pod.full_name}",
        step=f"token of service account {pod.namespace}/{account}",
        action="See that the service account exists; it is tried again.",
        retry_after=2,
    )
