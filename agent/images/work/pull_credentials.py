"""The credentials that a pod's image is pulled with: its own pull secrets first, then the node's logins and plugins.

Concurrent requests for the same image ask a plugin once. Its answer is cached for as long as it says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from agent.common.model.pods import Pod
from agent.common.work.gate import Gate
from agent.images.model.pulls import Account, AccountToken, PullCredential
from agent.images.plan import credential_providers as plan
from agent.images.plan import keyring
from agent.images.plan.credential_providers import Answer, Provider
from agent.images.work.answer_cache import AnswerCache
from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.key_locks import KeyLocks
from nodelib.threads import in_thread_if

log = logging.getLogger(__name__)

_AT_ONCE = 16  # programs: a pod may name thousands of images of a registry that a plugin is for
_MANY, _LONG = 200, 64 * 1024  # registries, and characters of an answer: more are worked on in a thread
_LONGEST = 5.0  # seconds; one that hangs, for a minute at most, does not hold up others for as long


class Secrets(Protocol):
    """images/work/pull_secrets.py PullSecrets."""

    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]: ...


class Plugins(Protocol):
    """images/edge/credential_plugins.py. Raises Temporary naming the plugin, with what it wrote to stderr."""

    async def ask(self, name: str, args: Sequence[str], env: Mapping[str, str], text: str) -> str: ...


class Accounts(Protocol):
    """images/edge/service_accounts.py. Calls raise NodewrightError."""

    async def account(self, namespace: str, name: str) -> Account: ...

    async def token(self, pod: Pod, account: Account, audience: str) -> AccountToken:
        """A token for the registry, bound to the pod."""
        ...


class Logins(Protocol):
    """images/edge/docker_config.py. Blocks on files: call it in a thread."""

    def read(self) -> Iterable[tuple[str, bytes]]: ...


class PullCredentials:
    """Without providers only the pods' secrets and the node's logins count."""

    def __init__(
        self,
        secrets: Secrets,
        providers: tuple[Provider, ...],
        plugins: Plugins | None,
        clock: Clock,
        logins: Logins | None = None,
        accounts: Accounts | None = None,
    ) -> None:
        self._secrets, self._providers, self._plugins, self._clock = secrets, providers, plugins, clock
        self._logins, self._accounts = logins, accounts
        self._cache = AnswerCache(clock.monotonic)
        self._locks = KeyLocks[tuple[str, str]]()
        self._places = Gate(_AT_ONCE, longest=_LONGEST)

    async def pull_auth(self, pod: Pod, image: str) -> list[PullCredential]:
        """Best match first. A plugin that fails is logged and left out."""
        own = await self._secrets.pull_auth(pod, image)
        name = plan.full_name(image)
        asked = [one for one in self._providers if plan.concerns(one, name)]
        logins = await asyncio.to_thread(self._read_logins)
        answers = await asyncio.gather(*(self._answer(one, name, pod) for one in asked))
        given = [logins, *(one.credentials for one in answers if one is not None)]
        return own + await in_thread_if(sum(map(len, given)) > _MANY, keyring.match, name, given)

    def _read_logins(self) -> Mapping[str, PullCredential]:
        return keyring.of_files(self._logins.read()) if self._logins is not None else {}

    async def _answer(self, provider: Provider, name: str, pod: Pod) -> Answer | None:
        async with self._places.place(pod.priority, group=pod.namespace), self._locks.of((provider.name, name)):
            try:
                return await (self._ask(provider, name) if provider.tokens is None else self._for(provider, name, pod))
            except NodewrightError as error:
                log.warning("pod %s, credential provider %s, image %s: %s", pod.full_name, provider.name, name, error)
                return None

    async def _for(self, provider: Provider, name: str, pod: Pod) -> Answer | None:
        """The answer of a plugin that gets a token of the pod's service account."""
        wanted, account_name = provider.tokens, str(pod.spec.get("serviceAccountName") or "")
        assert wanted is not None
        if not account_name:
            return None if wanted.account_needed else await self._ask(provider, name)
        if self._accounts is None:
            return None  # without an API server there are no tokens
        account = await self._accounts.account(pod.namespace, account_name)
        annotations = plan.annotations_for(wanted, account)
        if annotations is None:
            return None
        scope = plan.scope(wanted, account, annotations, pod.uid)
        known = self._known(provider, name, scope)
        if known is not None or self._plugins is None:
            return known
        token = await self._accounts.token(pod, account, wanted.audience)
        request = plan.request(provider, name, token.text, annotations)
        text = await self._plugins.ask(provider.name, provider.args, provider.env, request)
        found = await in_thread_if(len(text) > _LONG, plan.answer, provider, name, text)
        return self._cached(provider, scope, plan.of_account(found, wanted, account, token))

    async def _ask(self, provider: Provider, name: str) -> Answer | None:
        known = self._known(provider, name, "")
        if known is not None or self._plugins is None:
            return known
        text = await self._plugins.ask(provider.name, provider.args, provider.env, plan.request(provider, name))
        return self._cached(provider, "", await in_thread_if(len(text) > _LONG, plan.answer, provider, name, text))

    def _cached(self, provider: Provider, scope: str, found: Answer) -> Answer:
        self._cache.put((provider.name, scope, found.key), found)
        return found

    def _known(self, provider: Provider, name: str, scope: str) -> Answer | None:
        keys = (f"{kind}/{key}" for kind, key in plan.keys(name).items())
        known = (self._cache.get((provider.name, scope, key)) for key in keys)
        return next((one for one in known if one is not None), None)
