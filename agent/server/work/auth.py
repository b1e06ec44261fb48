"""Authentication and authorization of requests: client certificates, TokenReview, SubjectAccessReview.

Same contract as upstream's BuildAuth (cmd/kubelet/app/auth.go): certificates first, then
tokens, then anonymous if that is on. Decisions are cached for the configured times; a review
that fails is retried (after 0.5 s, then 1.5 times as long each time, five tries in all).

Tokens that are not valid are cached too, as upstream's cached_token_authenticator.go does, but not as long as the valid
ones: a token whose account has just been made must not stay refused for two minutes. They have a cache of their own, so
that many wrong tokens cannot drive out the right ones; and few reviews of tokens run at the same time.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson
from aiohttp import web

from agent.server.model import AuthSettings
from agent.server.plan import authz
from agent.server.ports import ReviewApi, Tls
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import Invalid
from nodelib.json_values import Json
from nodelib.kube.client import ApiError, ApiUnreachable

log = logging.getLogger(__name__)

_TRIES = 5
_PAUSE, _GROWTH, _LONGEST_PAUSE = 0.5, 1.5, 10.0  # seconds
_REVIEW_AGAIN = {429, 500, 502, 503, 504}
_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_MOST_ENTRIES = 4096
_LONGEST_REFUSAL = 10.0  # seconds for which a token stays refused
_TOKEN_REVIEWS = 16  # at the same time
_CREDENTIAL = "authentication.kubernetes.io/credential-id"

Value = TypeVar("Value")


@dataclass(slots=True)
class _Shared(Generic[Value]):
    answer: asyncio.Future[Value]
    callers: int = 0


class TtlCache(Generic[Value]):
    """A cache whose entries live for a time that depends on their value. Callers that ask for one key at the same
    time share one call of `ask`; once all of them have gone it is given up: a client that sends a token of a megabyte
    and leaves must not leave it here, too.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: dict[bytes, tuple[float, Value]] = {}
        self._asking: dict[bytes, _Shared[Value]] = {}

    async def get(self, key: bytes, ask: Callable[[], Awaitable[Value]], ttl: Callable[[Value], float]) -> Value:
        """The cached value, or the result of `ask`. Errors of `ask` are raised and not cached."""
        entry = self._entries.get(key)
        if entry is not None and entry[0] > self._clock.monotonic():
            return entry[1]
        shared = self._asking.get(key)
        if shared is None:
            shared = self._asking[key] = _Shared(asyncio.ensure_future(ask()))
            shared.answer.add_done_callback(lambda done: self._keep(key, done, ttl))
        shared.callers += 1
        try:
            return await asyncio.shield(shared.answer)
        finally:
            shared.callers -= 1
            if not shared.callers and shared.answer.cancel():
                self._forget(key, shared.answer)  # at once: the next caller must not share what is being cancelled

    def _forget(self, key: bytes, answer: asyncio.Future[Value]) -> None:
        shared = self._asking.get(key)
        if shared is not None and shared.answer is answer:
            del self._asking[key]

    def _keep(self, key: bytes, done: asyncio.Future[Value], ttl: Callable[[Value], float]) -> None:
        self._forget(key, done)
        if done.cancelled() or done.exception() is not None:
            return
        self.put(key, done.result(), ttl(done.result()))

    def holds(self, key: bytes) -> bool:
        entry = self._entries.get(key)
        return entry is not None and entry[0] > self._clock.monotonic()

    def put(self, key: bytes, value: Value, lasts: float) -> None:
        """Keep `value` for `lasts` seconds; when the cache is full, in the place of what is expired or oldest."""
        if lasts <= 0:
            return
        now = self._clock.monotonic()
        if len(self._entries) >= _MOST_ENTRIES:
            self._entries = {old: entry for old, entry in self._entries.items() if entry[0] > now}
        if len(self._entries) >= _MOST_ENTRIES:
            self._entries.pop(next(iter(self._entries)))
        self._entries[key] = (now + lasts, value)


class Auth:
    """Authenticates and authorizes requests to the kubelet API of one node."""

    def __init__(
        self, settings: AuthSettings, node_name: str, client: ReviewApi | None, tls: Tls, clock: Clock
    ) -> None:
        if settings.mode not in ("Webhook", "AlwaysAllow"):
            raise Invalid(
                f"unknown authorization mode {settings.mode}",
                step="set up the kubelet server",
                action="Set authorization.mode to Webhook or AlwaysAllow.",
            )
        self._settings = settings
        self._node_name = node_name
        self._client = client
        self._tls = tls
        self._clock = clock
        self._tokens: TtlCache[authz.User | None] = TtlCache(clock)
        self._refused: TtlCache[None] = TtlCache(clock)
        self._reviewing = asyncio.Semaphore(_TOKEN_REVIEWS)
        self._decisions: TtlCache[bool] = TtlCache(clock)

    async def user(self, request: web.BaseRequest) -> authz.User | None:
        """Who sent the request; None means 401. A wrong credential never becomes anonymous (upstream's FailOnError)."""
        known = self._certificate_user(request)
        if known is not None:
            return authz.with_authenticated_group(known)
        headers = request.headers
        token = authz.bearer_token(headers.get("Authorization", ""), headers.get("Sec-WebSocket-Protocol", ""))
        if token and self._settings.webhook:
            found = await self._token_user(token)
            return authz.with_authenticated_group(found) if found else None
        return authz.anonymous_user() if self._settings.anonymous else None

    async def refusal(self, user: authz.User, method: str, path: str) -> tuple[int, str] | None:
        """None when the request is allowed, else status and text of the response."""
        if self._settings.mode == "AlwaysAllow":
            return None
        asked = authz.attributes(method, path, streams_need_create=self._settings.streams_need_create)
        for subresource in asked.subresources:
            try:
                if await self._may(user, asked, subresource):
                    return None
            except (ApiError, ApiUnreachable) as error:
                log.error("authorization of %s for nodes/%s: %s", user.name, subresource, error)
                return 500, authz.undecided(user, asked, subresource)
        log.info("forbidden: user=%s verb=%s subresources=%s", user.name, asked.verb, asked.subresources)
        return 403, authz.forbidden(user, asked)

    def _certificate_user(self, request: web.BaseRequest) -> authz.User | None:
        tls = request.get_extra_info("ssl_object")
        der = tls.getpeercert(binary_form=True) if tls is not None else None
        if not der:
            return None
        found = self._tls.subject(der, tls.getpeercert() or {})
        if not found.name:
            return None
        return authz.User(found.name, found.uid, found.groups, {_CREDENTIAL: (f"X509SHA256={found.fingerprint}",)})

    async def _token_user(self, token: str) -> authz.User | None:
        # The cache holds only a digest, so that a core dump does not contain the token.
        key = hashlib.sha256(token.encode()).digest()
        lasts = self._settings.webhook_cache_ttl
        if self._refused.holds(key):
            return None
        try:
            user = await self._tokens.get(key, lambda: self._review_token(token), lambda user: lasts if user else 0)
            if user is None:
                self._refused.put(key, None, min(lasts, _LONGEST_REFUSAL))
            return user
        except (ApiError, ApiUnreachable) as error:
            log.error("unable to authenticate a request: %s", error)
            return None

    async def _review_token(self, token: str) -> authz.User | None:
        async with self._reviewing:
            return authz.reviewed_user(await self._review(_TOKENS, authz.token_review(token)))

    async def _may(self, user: authz.User, asked: authz.Attributes, subresource: str) -> bool:
        review = authz.access_review(user, self._node_name, asked.verb, subresource)

        async def ask() -> bool:
            return authz.is_allowed(await self._review(_ACCESS, review))

        if not authz.is_cacheable(user, asked.path):
            return await ask()
        settings = self._settings
        key = orjson.dumps(review["spec"], option=orjson.OPT_SORT_KEYS)
        return await self._decisions.get(
            key, ask, lambda allowed: settings.authorized_ttl if allowed else settings.unauthorized_ttl
        )

    async def _review(self, path: str, body: Json) -> Json:
        if self._client is None:
            raise ApiUnreachable("this agent runs without an API server", step="review a request")
        pause = Backoff(_PAUSE, _LONGEST_PAUSE, growth=_GROWTH)
        for last in (*(False,) * (_TRIES - 1), True):
            try:
                return await self._client.post(path, body)
            except ApiError as error:
                if last or error.code not in _REVIEW_AGAIN:
                    raise
            except ApiUnreachable:
                if last:
                    raise
            await self._clock.sleep(pause.next())
        raise AssertionError("unreachable: the last try returns or raises")
