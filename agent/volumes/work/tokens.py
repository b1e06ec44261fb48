"""Service account tokens bound to pods, kept while the pod lives and renewed as plan/tokens.py decides."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator, Sequence

from agent.common.model.pods import Pod
from agent.volumes.model.sources import TokenRequest
from agent.volumes.plan import tokens as plan
from agent.volumes.plan.tokens import Token
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, KubeClient
from nodelib.kube.times import format_rfc3339

log = logging.getLogger(__name__)

# Seconds between attempts at a first token: NodeRestriction may learn of a pod a moment after this node does.
_FIRST_PAUSES = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.4)


_Key = tuple[str, str, TokenRequest]  # the pod's UID, the service account


class TokenCache:
    """Tokens by pod, service account and request. Upstream: pkg/kubelet/token/token_manager.go."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._tokens: dict[_Key, Token] = {}
        self._lapsed: set[_Key] = set()  # expired, and not renewed when that was last tried

    async def get(self, pod: Pod, request: TokenRequest) -> str:
        """A valid token. Raises Temporary when there is none and the API server does not issue one."""
        account = plan.account_of(pod)
        key = (pod.uid, account, request)
        held = self._tokens.get(key)
        now = self._clock.steady()
        if held is not None and plan.is_fresh(held, now):
            return held.text
        try:
            fresh = await self._issue(pod, account, request, () if held is not None else _FIRST_PAUSES)
        except NodewrightError as error:
            old = plan.postponed(held, now) if held is not None else None
            if old is None:
                self._lapsed |= {key} if held is not None else set()
                raise _failed(pod, account, error) from error
            log.warning(
                "pod %s: the token of service account %s could not be renewed: %s", pod.full_name, account, error
            )
            self._tokens[key] = old
            return old.text
        self._tokens[key] = fresh
        self._lapsed.discard(key)
        return fresh.text

    async def status(self, pod: Pod, request: TokenRequest) -> Json:
        """get(), as the TokenRequestStatus that a CSI driver receives."""
        text = await self.get(pod, request)
        held = self._tokens.get((pod.uid, plan.account_of(pod), request))
        expires = held.expiration if held is not None else format_rfc3339(self._clock.now())
        return {"expirationTimestamp": expires, "token": text}

    def due(self) -> set[str]:
        """UIDs of pods that have a token to be renewed now.

        Whoever was refused another one for a token that has expired tries again in his own time: its service account
        may be gone for good.
        """
        now = self._clock.steady()
        return {key[0] for key, token in self._renewed() if not plan.is_fresh(token, now)}

    def next_due(self) -> float:
        """Seconds until the first renewal, at most an hour."""
        return plan.seconds_until_renewal([token.renew_at for _, token in self._renewed()], self._clock.steady())

    def drop_pod(self, uid: str) -> None:
        """The pod is gone: drop its tokens."""
        self._tokens = {key: token for key, token in self._tokens.items() if key[0] != uid}
        self._lapsed = {key for key in self._lapsed if key[0] != uid}

    def _renewed(self) -> Iterator[tuple[_Key, Token]]:
        return ((key, token) for key, token in self._tokens.items() if key not in self._lapsed)

    async def _issue(self, pod: Pod, account: str, request: TokenRequest, pauses: Sequence[float]) -> Token:
        path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{account}/token"
        body = plan.request_body(pod, request)
        for pause in (*pauses, None):
            begun = self._clock.steady()
            try:
                answer = await self._client.post(path, body)
                break
            except ApiError as error:
                if pause is None or not (error.is_forbidden or error.is_not_found):
                    raise
            await self._clock.sleep(pause)
        return plan.issued(answer, request, random.uniform(0, plan.JITTER), begun)


def _failed(pod: Pod, account: str, error: NodewrightError) -> Temporary:
    return Temporary(
        f"failed to fetch token: {error.message}",
        obj=f"pod {pod.full_name}",
        step=f"token of service account {pod.namespace}/{account}",
        action="Make sure that the service account exists; the agent tries again.",
        retry_after=2,
    )
