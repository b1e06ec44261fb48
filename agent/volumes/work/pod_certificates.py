"""Certificates of pods: a key and a request for every podCertificate source, renewed while the pod lives.

One task per source walks its life: ask, wait for the signer's answer, show it, rest until the time
to refresh, ask again. The old certificate is shown until its successor is there. A refusal is
final for the pod, as upstream (pkg/kubelet/podcertificate/podcertificatemanager.go) has it. Keys
are in memory only: an agent that has just started asks afresh, and the volumes keep their files
until then.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.common.model.pod_settings import NodeContext
from agent.common.model.pods import Json, Pod
from agent.volumes.model.sources import CertificateNeed, Credential
from agent.volumes.plan import pod_certificates as plan
from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.errors import Invalid, NodewrightError, Permanent, Temporary

log = logging.getLogger(__name__)

_PATIENCE = 3.0  # seconds that get() waits for a signer: most answer at once, and no event need tell of a wait
# NodeRestriction may learn of a pod or of its service account a moment after this node does.
_FIRST_PAUSE = 0.02  # seconds
_LONGEST_PAUSE = 60.0
_LOOK = 60.0  # seconds between looks at the wall clock, which may be set
_NOT_YET = "credential bundle is not issued yet"

Key = tuple[str, str, int]


class Requests(Protocol):
    """PodCertificateRequests of this node (volumes/edge/pod_certificates.py)."""

    def follow(self, on_change: Callable[[str, str, bool], None]) -> None: ...

    async def key(self, kind: str) -> tuple[bytes, bytes]: ...

    async def account_uid(self, namespace: str, name: str) -> str: ...

    async def create(self, request: Json) -> str: ...

    def find(self, namespace: str, name: str) -> Json | None: ...


@dataclass(frozen=True, slots=True)
class Reports:
    """`notify(uid)`: the pod's volumes want an update; `warn(pod, reason, message)`: a Warning event."""

    notify: Callable[[str], None]
    warn: Callable[[Pod, str, str], None]


@dataclass(slots=True)
class _Source:
    """What is known of one podCertificate source. `disappointed`: somebody went away without a certificate."""

    pod: Pod
    need: CertificateNeed
    credential: Credential | None = None
    refresh_at: float = 0.0
    not_after: float = 0.0
    refused: plan.Refused | None = None
    failure: NodewrightError | None = None
    request: str = ""
    gone: bool = False
    disappointed: bool = False
    told: set[str] = field(default_factory=set)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None

    def __str__(self) -> str:
        return f"pod {self.pod.full_name}, volume {self.need.volume}, source {self.need.index}"


class PodCertificateManager:
    """The certificates of all pods of this node, by pod, volume and source."""

    def __init__(
        self, requests: Requests, clock: Clock, node_name: str, node: Callable[[], NodeContext], reports: Reports
    ) -> None:
        self._requests = requests
        self._clock = clock
        self._node_name = node_name
        self._node = node
        self._reports = reports
        self._sources: dict[Key, _Source] = {}
        requests.follow(self._changed)

    async def get(self, pod: Pod, need: CertificateNeed) -> Credential:
        """The newest certificate and its key. The first call asks for it, and it is renewed until forget().

        Raises Temporary while the signer has not answered, Permanent once it has refused.
        """
        if pod.source != "api":
            raise Permanent(
                "a static pod cannot have a pod certificate",
                obj=f"pod {pod.full_name}",
                step=f"volume {need.volume}",
                action="Use files of the node instead (hostPath), or make it an ordinary pod.",
            )
        source = self._source(pod, need)
        await self._wait(source.settled, _PATIENCE)
        if source.refused is not None:
            raise _refusal(source, source.refused)
        if source.credential is not None:
            return source.credential
        source.disappointed = True
        raise _missing(source)

    def forget(self, uid: str) -> None:
        """The pod is no more: nothing is renewed, its keys are dropped. Its requests fall to the garbage collector."""
        for key in [key for key in self._sources if key[0] == uid]:
            task = self._sources.pop(key).task
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        tasks = [source.task for source in self._sources.values() if source.task is not None]
        self._sources.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def states(self) -> Mapping[tuple[str, str], int]:
        """Sources by (signer name, state), as upstream's kubelet_podcertificate_states has them."""
        now = self._clock.now()
        return Counter((source.need.signer, _state(source, now)) for source in tuple(self._sources.values()))

    def _source(self, pod: Pod, need: CertificateNeed) -> _Source:
        key = (pod.uid, need.volume, need.index)
        source = self._sources.get(key)
        if source is None:
            source = self._sources[key] = _Source(pod, need)
            source.task = asyncio.create_task(self._guard(source), name=f"certificate/{pod.full_name}/{need.volume}")
        source.pod = pod
        return source

    async def _guard(self, source: _Source) -> None:
        while True:
            try:
                await self._live(source)
                return
            except Exception as error:
                log.exception("%s: its certificate's keeper failed and starts again", source)
                source.failure = Temporary(repr(error), obj=str(source))
                await self._clock.sleep(_LONGEST_PAUSE)

    async def _live(self, source: _Source) -> None:
        """Until the signer refuses, or cancelled."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            key = await self._ask(source)
            answer = await self._answer(source)
            if answer is None:
                log.info("%s: PodCertificateRequest %s was deleted, another one is made", source, source.request)
                await self._clock.sleep(pause.next())
                continue
            pause.reset()
            if isinstance(answer, plan.Refused):
                self._refuse(source, answer)
                return
            self._take(source, key, answer)
            while (left := source.refresh_at - self._clock.now()) > 0:
                await self._clock.sleep(min(left, _LOOK))

    async def _ask(self, source: _Source) -> bytes:
        """Create a request; the key it is for. Tries until it works."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, jitter=0.1)
        made: tuple[bytes, bytes] | None = None
        while True:
            self._complain(source)
            try:
                facts, pod = self._node(), source.pod
                if not facts.uid:
                    raise Temporary("this node is not registered yet", obj=self._node_name, retry_after=1)
                account_uid = await self._requests.account_uid(pod.namespace, plan.account(pod))
                made = made or await self._requests.key(source.need.key_type)
                request = plan.request(
                    pod, source.need, made[1], node=self._node_name, node_uid=facts.uid, account_uid=account_uid
                )
                source.request, source.gone = "", False
                source.request = await self._requests.create(request)
                source.failure = None
                return made[0]
            except NodewrightError as error:
                if str(error) != str(source.failure) and pause.current > 1:
                    log.warning("%s: no PodCertificateRequest made: %s", source, error)
                source.failure = error
            await self._clock.sleep(pause.next())

    async def _answer(self, source: _Source) -> plan.Issued | plan.Refused | None:
        """What the signer says; None when the request is gone and must be made anew."""
        abandon_at = self._clock.monotonic() + plan.ABANDON_AFTER
        while True:
            source.changed.clear()
            found = self._requests.find(source.pod.namespace, source.request)
            if found is None and (source.gone or self._clock.monotonic() > abandon_at):
                return None
            try:
                answer = plan.verdict(found) if found is not None else None
            except Invalid as error:
                answer = plan.Refused("Failed", "InvalidStatus", error.message)
            if answer is not None:
                return answer
            self._complain(source)
            await self._wait(source.changed, _LOOK)

    def _take(self, source: _Source, key: bytes, issued: plan.Issued) -> None:
        renewed = source.credential is not None
        source.credential = Credential(key, issued.chain)
        source.refresh_at, source.not_after = plan.refresh_at(issued, random.random()), issued.not_after
        source.told.clear()
        self._settle(source, tell=renewed)

    def _refuse(self, source: _Source, refused: plan.Refused) -> None:
        source.refused = refused
        done = {"Denied": "was denied", "Failed": "failed"}[refused.how]
        name = f"{source.pod.namespace}/{source.request}"
        text = f'PodCertificateRequest {name} {done}, reason="{refused.reason}", message="{refused.message}"'
        self._reports.warn(source.pod, refused.how, text)
        self._settle(source, tell=False)

    def _settle(self, source: _Source, *, tell: bool) -> None:
        source.settled.set()
        if tell or source.disappointed:
            source.disappointed = False
            self._reports.notify(source.pod.uid)

    def _complain(self, source: _Source) -> None:
        """Once per certificate: that it should have a successor, that it is of no use any more."""
        if source.credential is None:
            return
        age = plan.age(source.refresh_at, source.not_after, self._clock.now())
        if age is not plan.Age.FRESH:
            self._say(source, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
        if age is plan.Age.EXPIRED:
            self._say(source, "CertificateExpired", "PodCertificate expired")

    def _say(self, source: _Source, reason: str, message: str) -> None:
        if reason not in source.told:
            source.told.add(reason)
            self._reports.warn(source.pod, reason, message)

    def _changed(self, namespace: str, name: str, gone: bool) -> None:
        for source in self._sources.values():
            if source.request == name and source.pod.namespace == namespace:
                source.gone = gone
                source.changed.set()

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        """Until the event, or so long."""
        if not event.is_set():
            await at_most(self._clock, seconds, event)


def _state(source: _Source, now: float) -> str:
    if source.refused is not None:
        return source.refused.how.lower()
    if source.credential is None:
        return "not_yet_issued"
    return plan.age(source.refresh_at, source.not_after, now).value


def _refusal(source: _Source, refused: plan.Refused) -> Permanent:
    return Permanent(
        f'PodCertificateRequest was permanently {refused.how.lower()}: reason="{refused.reason}" '
        f'message="{refused.message}"',
        obj=f"pod {source.pod.full_name}",
        step=f"volume {source.need.volume}",
        action=f"Ask whoever runs the signer {source.need.signer}; a new pod asks anew.",
    )


def _missing(source: _Source) -> Temporary:
    made = f"PodCertificateRequest {source.pod.namespace}/{source.request} waits for its signer"
    why = source.failure.message if source.failure is not None else (made if source.request else "")
    return Temporary(
        f"{_NOT_YET}: {why}" if why else _NOT_YET,
        obj=f"pod {source.pod.full_name}",
        step=f"volume {source.need.volume}",
        action=f"See that the signer {source.need.signer} runs; the pod starts as soon as it has answered.",
        retry_after=60,
    )
