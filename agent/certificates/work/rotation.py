"""Keeps one certificate of this node fresh: asks the cluster for it, waits, stores it, tells who uses it.

Never ends with an expired certificate in silence: `waiting` always says, in words, why there is no new one.
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
from agent.certificates.plan import Json, Refusal, Signer
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.kube.client import ApiError

log = logging.getLogger(__name__)

_ANSWER_WITHIN = 900.0  # seconds; then a new request is made (certificateWaitTimeout upstream)
_TEMPLATE_LOOK = 1.0  # seconds between two looks at what the certificate must be for
_LONGEST_SLEEP = 3600.0  # seconds: the wall clock may be set while we sleep


class Requests(Protocol):
    """certificates/edge/node_certificates.py SigningRequests."""

    async def create(self, body: Json) -> str: ...

    def follow(self, name: str) -> AsyncGenerator[Json, None]: ...


class Store(Protocol):
    """certificates/edge/node_certificates.py CertificateStore; blocking."""

    @property
    def path(self) -> str: ...

    def current(self) -> Pair | None: ...

    def update(self, chain: bytes, key: bytes) -> Pair: ...


Maker = Callable[[Template], KeyAndRequest]


@dataclass(frozen=True, slots=True)
class Kept:
    """The certificate that is kept: who signs it, where it is. `wanted()` says what for, None while that is not known;
    `on_new` is told of each new one; `at_once`: the first new one is asked for now, however good the old one is.
    """

    signer: Signer
    store: Store
    wanted: Callable[[], Template | None]
    on_new: Callable[[Pair], Awaitable[None]]
    at_once: bool = False


class CertificateKeeper:
    """One certificate. `chance` (0 to 1) spreads over the nodes when a new one is asked for.

    `waiting`: why it has no (new) certificate yet, "" when all is well. `pair`: the one in use.
    """

    def __init__(self, kept: Kept, requests: Requests, make: Maker, clock: Clock, *, chance: float) -> None:
        self.signer = kept.signer
        self.pair: Pair | None = None
        self.waiting = ""
        self.renewals = 0
        self.failures = 0
        self._store, self._wanted, self._on_new, self._at_once = kept.store, kept.wanted, kept.on_new, kept.at_once
        self._requests, self._make, self._clock, self._chance = requests, make, clock, chance

    async def run(self) -> None:
        """Until cancelled. A failure is logged, shown in `waiting`, and tried again with a growing pause."""
        try:
            self.pair = await asyncio.to_thread(self._store.current)
        except NodewrightError as error:
            log.warning("%s; a new one is asked for", error)
        pause = Backoff(2.0, 32.0, jitter=0.1)
        while True:
            wanted = await self._until_due()
            try:
                await self._renew(wanted)
                pause.reset()
            except NodewrightError as error:
                self.failures += 1
                self._tell(str(error))
                await self._clock.sleep(pause.next())

    async def _until_due(self) -> Template:
        """Sleep until a certificate must be asked for, and say what for."""
        while True:
            wanted = self._wanted()
            if wanted is None:
                self._tell("the Node object shows no IP address yet")
                await self._clock.sleep(_TEMPLATE_LOOK)
                continue
            left = self._seconds_left(wanted)
            if left <= 0:
                self._at_once = False
                return wanted
            self.waiting = ""
            await self._clock.sleep(min(left, _TEMPLATE_LOOK * 10, _LONGEST_SLEEP))

    def _seconds_left(self, wanted: Template) -> float:
        if self.pair is None or self._at_once or not plan.satisfies(self.pair.leaf, wanted):
            return 0.0
        return plan.rotate_at(self.pair.leaf, self._chance, self.pair.since) - self._clock.now()

    async def _renew(self, wanted: Template) -> None:
        made = await asyncio.to_thread(self._make, wanted)
        chain = await obtain(self._requests, plan.request(self.signer, made.request), self._tell)
        pair = await asyncio.to_thread(self._store.update, chain, made.key)
        problem = plan.clock_problem(pair.leaf, self._clock.now())
        if problem:
            log.warning("%s: the new certificate: %s", self.signer, problem)
        self.pair = pair
        self.renewals += 1
        self.waiting = ""
        log.info("%s: new certificate, good for %.0f s: %s", self.signer, _life(pair.leaf), pair.path)
        await self._on_new(pair)

    def _tell(self, message: str) -> None:
        if message != self.waiting:
            log.warning("%s: %s", self.signer, message)
        self.waiting = message


async def obtain(requests: Requests, body: Json, tell: Callable[[str], None]) -> bytes:
    """Ask, and wait for the chain in PEM; `tell` hears what is waited for.

    Raises Permanent when it is refused, Temporary when nobody answers in time or the API server is away.
    """
    with _explained(body["spec"]["signerName"]):
        name = await requests.create(body)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                return await _answer(requests, name, tell)
        except TimeoutError as error:
            raise Temporary(
                f"not answered in {_ANSWER_WITHIN:.0f} s",
                obj=f"CertificateSigningRequest {name}",
                step="wait for the certificate",
                action=f"kubectl certificate approve {name}; a new request follows.",
            ) from error


async def _answer(requests: Requests, name: str, tell: Callable[[str], None]) -> bytes:
    while True:
        async with contextlib.aclosing(requests.follow(name)) as seen:
            async for found in seen:
                answer = plan.verdict(found)
                if isinstance(answer, Refusal):
                    raise Permanent(
                        f"{answer.how}: {answer.reason}: {answer.message}",
                        obj=f"CertificateSigningRequest {name}",
                        step="wait for the certificate",
                        action="See who denied it and why: kubectl describe csr; then delete it, a new one follows.",
                    )
                if answer is not None:
                    return answer
                tell(plan.waits_for(found, name))


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
                action="A bootstrap token may be wrong or have ended: make a new one with `kubeadm token create`;"
                " a client certificate may have expired: remove the kubeconfig and bootstrap again.",
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


def _life(leaf: Leaf) -> float:
    return leaf.not_after - leaf.not_before
