"""Certificates of pods: a key and a PodCertificateRequest for every podCertificate source, renewed while the pod lives.

One task per source creates a request, waits for the signer, shows the certificate, waits until it must be renewed, and
starts over. The old certificate is shown until its successor is there. A refusal is final for the pod, as upstream has
it (pkg/kubelet/podcertificate/podcertificatemanager.go). Keys are kept in memory only: an agent that has just started
creates new requests, and the volumes keep their files until those are answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Pod
from agent.common.work.pod_warnings import Warn
from agent.volumes.model.sources import MOST_CERTIFICATES_OF_NAMESPACE, CertificateProjection, Credential
from agent.volumes.plan import pod_certificates as plan
from agent.volumes.ports import PodCertificateApi
from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.errors import Invalid, NodewrightError, Permanent, Temporary
from nodelib.tasks import cancel_and_wait

log = logging.getLogger(__name__)

_GET_TIMEOUT = 3.0  # seconds that get() waits for a signer: most answer at once, which saves a warning event
# NodeRestriction may learn of a pod or of its service account a moment after this node does.
_FIRST_PAUSE = 0.02  # seconds
_LONGEST_PAUSE = 60.0
_CLOCK_CHECK = 60.0  # seconds between readings of the wall clock, which may be set
_NOT_YET = "credential bundle is not issued yet"

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Reports:
    """`notify(uid)`: the pod's volumes should be refreshed; `warn` emits a Warning event."""

    notify: Callable[[str], None]
    warn: Warn


@dataclass(slots=True)
class _Source:
    """What is known of one podCertificate source.

    `request` names the newest PodCertificateRequest; `gone`: it was deleted. `get_failed`: a get() gave up waiting, so
    the pod must be notified of the answer. `warned`: reasons of events about the current certificate.
    """

    pod: Pod
    projection: CertificateProjection
    credential: Credential | None = None
    refresh_at: float = 0.0  # steady seconds, as not_after
    not_after: float = 0.0
    due_by_the_wall: float = math.inf  # inf: the wall clock does not agree with the signer's
    refused: plan.Refused | None = None
    failure: NodewrightError | None = None
    request: str = ""
    gone: bool = False
    get_failed: bool = False
    warned: set[str] = field(default_factory=set)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"pod {self.pod.full_name}, volume {self.projection.volume}, source {self.projection.index}"


class PodCertificateManager:
    """The certificates of all pods of this node, by pod, volume and source."""

    def __init__(
        self,
        requests: PodCertificateApi,
        clock: Clock,
        node_name: str,
        node: Callable[[], NodeContext],
        reports: Reports,
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._node_name = node_name
        self._node = node
        self._reports = reports
        self._sources: dict[Key, _Source] = {}
        requests.follow(self._changed)

    async def get(self, pod: Pod, projection: CertificateProjection) -> Credential:
        """The newest certificate and its key. The first call requests it, and it is renewed until drop_pod().

        Raises Temporary while the signer has not answered, Permanent once it has refused.
        """
        if pod.source != "api":
            raise Permanent(
                "a static pod cannot have a pod certificate",
                obj=f"pod {pod.full_name}",
                step=f"volume {projection.volume}",
                action="Use files of the node instead (hostPath), or make it an ordinary pod.",
            )
        source = self._source(pod, projection)
        await self._wait(source.settled, _GET_TIMEOUT)
        if source.refused is not None:
            raise _refusal_error(source, source.refused)
        if source.credential is not None:
            return source.credential
        source.get_failed = True
        raise _not_issued_error(source)

    def drop_pod(self, uid: str) -> None:
        """Stop renewing for this pod and drop its keys. The API server's garbage collector deletes its requests."""
        for key in [key for key in self._sources if key[0] == uid]:
            task = self._sources.pop(key).task
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        tasks = [source.task for source in self._sources.values() if source.task is not None]
        self._sources.clear()
        await cancel_and_wait(*tasks)

    def states(self) -> Mapping[tuple[str, str], int]:
        """Sources by (signer name, state), as upstream's kubelet_podcertificate_states has them."""
        now = self._clock.steady()
        return Counter((source.projection.signer, _state(source, now)) for source in tuple(self._sources.values()))

    def _source(self, pod: Pod, projection: CertificateProjection) -> _Source:
        key = (pod.uid, projection.volume, projection.index)
        source = self._sources.get(key)
        if source is None:
            self._check_room(pod)
            source = self._sources[key] = _Source(pod, projection)
            source.task = asyncio.create_task(
                self._guard(source), name=f"certificate/{pod.full_name}/{projection.volume}"
            )
        source.pod = pod
        return source

    def _check_room(self, pod: Pod) -> None:
        """Each certificate is a key that takes a second, and a request that is followed. Raises Temporary."""
        there = sum(1 for one in self._sources.values() if one.pod.namespace == pod.namespace)
        if there >= MOST_CERTIFICATES_OF_NAMESPACE:
            raise Temporary(
                f"the pods of namespace {pod.namespace} have {there} certificates on this node, which is the most",
                obj=f"pod {pod.full_name}",
                action="Run fewer of them on one node.",
                retry_after=30,
            )

    async def _guard(self, source: _Source) -> None:
        while True:
            try:
                await self._maintain(source)
                return
            except Exception as error:
                log.exception("%s: the task that renews its certificate failed and is started again", source)
                source.failure = Temporary(repr(error), obj=str(source))
                await self._clock.sleep(_LONGEST_PAUSE)

    async def _maintain(self, source: _Source) -> None:
        """Request and renew until the signer refuses, or cancelled."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        made: tuple[bytes, bytes] | None = None
        while True:
            made = await self._create_request(source, made)
            answer = await self._wait_for_answer(source)
            if answer is None:
                log.info("%s: PodCertificateRequest %s was deleted; creating another one", source, source.request)
                await self._clock.sleep(pause.next())
                continue
            pause.reset()
            if isinstance(answer, plan.Refused):
                self._on_refused(source, answer)
                return
            self._on_issued(source, made[0], answer)
            made = None  # each certificate has a key of its own
            while (left := self._seconds_left(source)) > 0:
                await self._clock.sleep(min(left, _CLOCK_CHECK))

    async def _create_request(self, source: _Source, made: tuple[bytes, bytes] | None) -> tuple[bytes, bytes]:
        """Create a request, trying until it works; returns its key and proof. `made`: those of one that was deleted."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0.1)
        while True:
            self._warn_if_old(source)
            try:
                facts, pod = self._node(), source.pod
                if not facts.uid:
                    raise Temporary("this node is not registered yet", obj=self._node_name, retry_after=1)
                account_uid = await self._requests.account_uid(pod.namespace, plan.account(pod))
                made = made or await self._requests.key(source.projection.key_type, pod.namespace)
                request = plan.request(
                    pod, source.projection, made[1], node=self._node_name, node_uid=facts.uid, account_uid=account_uid
                )
                source.request, source.gone = "", False
                source.request = await self._requests.create(request)
                source.failure = None
                return made
            except NodewrightError as error:
                if str(error) != str(source.failure) and pause.current > 1:
                    log.warning("%s: cannot create a PodCertificateRequest: %s", source, error)
                source.failure = error
            await self._clock.sleep(pause.next())

    async def _wait_for_answer(self, source: _Source) -> plan.Issued | plan.Refused | None:
        """The signer's answer; None when the request is gone and another one must be created."""
        abandon_at = self._clock.monotonic() + plan.ABANDON_AFTER
        while True:
            source.changed.clear()
            found = self._requests.find(source.pod.namespace, source.request)
            if found is None and (source.gone or self._clock.monotonic() > abandon_at):
                return None
            try:
                answer = plan.answer_of(found) if found is not None else None
            except Invalid as error:
                answer = plan.Refused("Failed", "InvalidStatus", error.message)
            if answer is not None:
                return answer
            self._warn_if_old(source)
            await self._wait(source.changed, _CLOCK_CHECK)

    def _seconds_left(self, source: _Source) -> float:
        """Until the renewal. A clock that is set back delays it never; one that is set right may show it to be due."""
        return min(source.refresh_at - self._clock.steady(), source.due_by_the_wall - self._clock.now())

    def _on_issued(self, source: _Source, key: bytes, issued: plan.Issued) -> None:
        renewed = source.credential is not None
        source.credential = Credential(key, issued.chain)
        refresh = plan.refresh_at(issued, random.random())
        left, agrees = plan.seconds_left(issued, refresh, self._clock.now())
        source.refresh_at = self._clock.steady() + left
        source.not_after = source.refresh_at + issued.not_after - refresh
        source.due_by_the_wall = refresh if agrees else math.inf
        source.warned.clear()
        self._settle(source, notify=renewed)

    def _on_refused(self, source: _Source, refused: plan.Refused) -> None:
        source.refused = refused
        outcome = {"Denied": "was denied", "Failed": "failed"}[refused.how]
        name = f"{source.pod.namespace}/{source.request}"
        text = f'PodCertificateRequest {name} {outcome}, reason="{refused.reason}", message="{refused.message}"'
        self._reports.warn(source.pod, refused.how, text)
        self._settle(source, notify=False)

    def _settle(self, source: _Source, *, notify: bool) -> None:
        source.settled.set()
        if notify or source.get_failed:
            source.get_failed = False
            self._reports.notify(source.pod.uid)

    def _warn_if_old(self, source: _Source) -> None:
        """Warn once per certificate that it is overdue for renewal, and once that it has expired."""
        if source.credential is None:
            return
        age = plan.age(source.refresh_at, source.not_after, self._clock.steady())
        if age is not plan.Age.FRESH:
            self._warn_once(source, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
        if age is plan.Age.EXPIRED:
            self._warn_once(source, "CertificateExpired", "PodCertificate expired")

    def _warn_once(self, source: _Source, reason: str, message: str) -> None:
        if reason not in source.warned:
            source.warned.add(reason)
            self._reports.warn(source.pod, reason, message)

    def _changed(self, namespace: str, name: str, gone: bool) -> None:
        for source in self._sources.values():
            if source.request == name and source.pod.namespace == namespace:
                source.gone = gone
                source.changed.set()

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        """Until the event, at most so many seconds."""
        if not event.is_set():
            await at_most(self._clock, seconds, event)


def _state(source: _Source, now: float) -> str:
    if source.refused is not None:
        return source.refused.how.lower()
    if source.credential is None:
        return "not_yet_issued"
    return plan.age(source.refresh_at, source.not_after, now).value


def _refusal_error(source: _Source, refused: plan.Refused) -> Permanent:
    return Permanent(
        f'PodCertificateRequest was permanently {refused.how.lower()}: reason="{refused.reason}" '
        f'message="{refused.message}"',
        obj=f"pod {source.pod.full_name}",
        step=f"volume {source.projection.volume}",
        action=f"Ask whoever runs the signer {source.projection.signer}, then create the pod again.",
    )


def _not_issued_error(source: _Source) -> Temporary:
    waiting = f"PodCertificateRequest {source.pod.namespace}/{source.request} waits for its signer"
    why = source.failure.message if source.failure is not None else (waiting if source.request else "")
    return Temporary(
        f"{_NOT_YET}: {why}" if why else _NOT_YET,
        obj=f"pod {source.pod.full_name}",
        step=f"volume {source.projection.volume}",
        action=f"Make sure that the signer {source.projection.signer} runs; the pod starts as soon as it has answered.",
        retry_after=60,
    )
