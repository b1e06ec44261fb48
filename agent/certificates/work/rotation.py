"""Keeps one certificate of this node valid: requests it from the cluster, waits, stores it and notifies its user.

An expired certificate is never a silent failure: `waiting` always says, in words, why there is no new one.
Upstream: client-go's util/certificate/certificate_manager.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from agent.certificates import plan
from agent.certificates.model import KeyAndRequest, Leaf, Pair, Template
from agent.certificates.plan import Pending, Refusal, Signer
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.kube.client import ApiError

log = logging.getLogger(__name__)

_ANSWER_WITHIN = 900.0  # seconds; after that a new request is made (certificateWaitTimeout upstream)
_TEMPLATE_CHECK = 1.0  # seconds between two checks of what the certificate must contain
_LONGEST_SLEEP = 3600.0  # seconds; the wall clock may be changed during the sleep


class Requests(Protocol):
    """CertificateSigningRequests of the API server (certificates/edge/signing_requests.py)."""

    async def create(self, body: Json) -> str: ...

    def follow(self, name: str) -> AsyncGenerator[Json, None]: ...


class Store(Protocol):
    """The certificates of one purpose on disk (certificates/edge/certificate_store.py). Blocking."""

    @property
    def path(self) -> str: ...

    def current(self) -> Pair | None: ...

    def update(self, chain: bytes, key: bytes) -> Pair: ...


Maker = Callable[[Template], KeyAndRequest]


@dataclass(frozen=True, slots=True)
class ManagedCertificate:
    """A certificate to keep valid: its signer and its store.

    `wanted()` is what it must contain, None while that is not known. `on_new` is called with each new one. `at_once`:
    request the first new one now, however long the old one is valid.
    """

    signer: Signer
    store: Store
    wanted: Callable[[], Template | None]
    on_new: Callable[[Pair], Awaitable[None]]
    at_once: bool = False


class CertificateManager:
    """Keeps one certificate valid. `chance` (0 to 1) spreads the renewals of many nodes over time.

    `waiting` says why there is no (new) certificate yet, None when all is well. `pair` is the one in use.
    """

    def __init__(
        self, kept: ManagedCertificate, requests: Requests, make: Maker, clock: Clock, *, chance: float
    ) -> None:
        self.signer = kept.signer
        self.pair: Pair | None = None
        self.waiting: Pending | None = None
        self.renewals = 0
        self.failures = 0
        self._store, self._wanted, self._on_new, self._at_once = kept.store, kept.wanted, kept.on_new, kept.at_once
        self._requests, self._make, self._clock, self._chance = requests, make, clock, chance
        self._due: float | None = None  # steady seconds; None: of a certificate that was there at the start
        self._agrees = True  # this machine's clock, with the signer's

    async def run(self) -> None:
        """Until cancelled. A failure is logged, shown in `waiting`, and retried after a growing pause."""
        try:
            self.pair = await asyncio.to_thread(self._store.current)
            if self.pair is not None and not plan.clock_problem(self.pair.leaf, self._clock.now()):
                self._due = self._clock.steady() + plan.seconds_left(self.pair, self._chance, self._clock.now())
        except NodewrightError as error:
            log.warning("%s; requesting a new one", error)
        pause = Backoff(2.0, 32.0, jitter=0.1)
        while True:
            wanted = await self._until_due()
            try:
                await self._renew(wanted)
                if self._seconds_left(wanted) > 0:
                    pause.reset()
                else:  # a signer that leaves out what the node needs, or whose certificates end at once
                    await self._clock.sleep(pause.next())
            except NodewrightError as error:
                self.failures += 1
                self._wait_for(Pending(str(error)))
                await self._clock.sleep(pause.next(error.retry_after))

    async def _until_due(self) -> Template:
        """Sleep until a new certificate is due and return what it must contain."""
        while True:
            wanted = self._wanted()
            if wanted is None:
                self._wait_for(Pending("the Node object shows no IP address yet"))
                await self._clock.sleep(_TEMPLATE_CHECK)
                continue
            left = self._seconds_left(wanted)
            if left <= 0:
                self._at_once = False
                return wanted
            self.waiting = None
            await self._clock.sleep(min(left, _TEMPLATE_CHECK * 10, _LONGEST_SLEEP))

    def _seconds_left(self, wanted: Template) -> float:
        if self.pair is None or self._at_once or not plan.satisfies(self.pair.leaf, wanted):
            return 0.0
        by_the_wall = plan.rotate_at(self.pair.leaf, self._chance, self.pair.since) - self._clock.now()
        # A new one is due by its age alone: the clock may be set back later, and it may have been wrong when it came.
        if self._due is None:
            return by_the_wall
        by_age = self._due - self._clock.steady()
        return min(by_age, by_the_wall) if self._agrees else by_age

    async def _renew(self, wanted: Template) -> None:
        made = await asyncio.to_thread(self._make, wanted)
        chain = await obtain(self._requests, plan.request(self.signer, made.request), self._wait_for)
        pair = await asyncio.to_thread(self._store.update, chain, made.key)
        problem = plan.clock_problem(pair.leaf, self._clock.now())
        if problem:
            log.warning("%s: problem with the new certificate: %s", self.signer, problem)
        self._due = self._clock.steady() + plan.seconds_left(pair, self._chance, self._clock.now())
        self._agrees = not problem
        self.pair = pair
        self.renewals += 1
        self.waiting = None
        log.info("%s: new certificate, valid for %.0f s: %s", self.signer, _lifetime(pair.leaf), pair.path)
        await self._on_new(pair)

    def _wait_for(self, pending: Pending) -> None:
        if pending != self.waiting:
            log.warning("%s: %s", self.signer, pending.message)
        self.waiting = pending


async def obtain(requests: Requests, body: Json, on_pending: Callable[[Pending], None]) -> bytes:
    """Create the request `body` and return the chain in PEM; `on_pending` is called while it is not answered.

    Raises Permanent when it is refused, Temporary when it is not answered in time or the API server is unreachable.
    """
    with _explained(body["spec"]["signerName"]):
        name = await requests.create(body)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await _answer(requests, name, on_pending)
        except TimeoutError as error:
            raise Temporary(
                f"not answered in {_ANSWER_WITHIN:.0f} s",
                obj=f"CertificateSigningRequest {name}",
                step="wait for the certificate",
                action=f"Run kubectl certificate approve {name}. The node makes a new request.",
            ) from error


async def _answer(requests: Requests, name: str, on_pending: Callable[[Pending], None]) -> bytes:
    while True:
        async with contextlib.aclosing(requests.follow(name)) as seen:
            async for found in seen:
                answer = _verdict(found, name)
                if isinstance(answer, Refusal):
                    raise Permanent(
                        f"{answer.how}: {answer.reason}: {answer.message}",
                        obj=f"CertificateSigningRequest {name}",
                        step="wait for the certificate",
                        action="See who denied it and why: kubectl describe csr. Delete it: the node makes a new one.",
                    )
                if answer is not None:
                    return answer
                on_pending(plan.pending(found, name))


def _verdict(found: Json, name: str) -> bytes | Refusal | None:
    try:
        return plan.verdict(found)
    except (ValueError, TypeError, AttributeError) as error:
        raise Temporary(
            f"its status is not what an API server answers: {error}",
            obj=f"CertificateSigningRequest {name}",
            step="wait for the certificate",
            action="Look for a proxy in front of the API server. The node makes a new request.",
        ) from error


@contextlib.contextmanager
def _explained(signer: str) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.code == 401:
            raise Permanent(
                "the API server does not know these credentials (401)",
                obj=signer,
                step="ask for a certificate",
                action="A bootstrap token may be wrong or expired: create one with `kubeadm token create`."
                " A client certificate may have expired: remove the kubeconfig and bootstrap again.",
            ) from error
        if error.code == 403:
            raise Permanent(
                f"these credentials may not ask for a certificate (403): {error.message}",
                obj=signer,
                step="ask for a certificate",
                action="Bind ClusterRole system:node-bootstrapper to the group of the bootstrap token"
                " (kubeadm: system:bootstrappers:kubeadm:default-node-token).",
            ) from error
        raise


def _lifetime(leaf: Leaf) -> float:
    return leaf.not_after - leaf.not_before
