"""Keeps the views of all pods fresh: CRI lists are the truth, events only say which pod to list (pkg/kubelet/pleg).

A step of a pod's worker refreshes what it created, stopped or removed (runtime/work/views.py); an event about a pod
refreshes all of it; all pods together are listed at intervals (the audit; upstream: relist).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterator

from agent.common.metrics import Metrics
from agent.common.model.errors import CriError
from agent.common.model.pods import ContainerState, SandboxState, is_uid
from agent.common.ports import PodFiles
from agent.runtime.plan import is_known
from agent.runtime.ports import RuntimeService
from agent.runtime.work.views import Views, in_time
from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.tasks import side_by_side

log = logging.getLogger(__name__)

AUDIT_INTERVAL = 10.0  # seconds, with an event stream
_BLIND_INTERVAL = 1.0  # seconds, without one
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds
_REFRESHES_AT_ONCE = 8


class Observer(Views):
    """The views, kept fresh."""

    def __init__(self, runtime: RuntimeService, files: PodFiles, clock: Clock, metrics: Metrics) -> None:
        super().__init__(runtime, files)
        self._clock, self._metrics = clock, metrics
        self._hints: asyncio.Queue[str] = asyncio.Queue()
        self._hinted: dict[str, list[ContainerState | None]] = {}
        self._acting: defaultdict[str, list[str]] = defaultdict(list)
        self._streaming = False
        self._audit_now = asyncio.Event()
        self.audited = asyncio.Event()
        self.last_audit = 0.0
        self.last_error = ""

    def hint(self, uid: str, ended: ContainerState | None = None) -> None:
        """Something may have happened to this pod: refresh it soon. `ended`: only this container's exit."""
        if not is_uid(uid):
            return
        if uid not in self._hinted:
            self._hinted[uid] = []
            self._hints.put_nowait(uid)
        self._hinted[uid].append(ended)

    @contextlib.contextmanager
    def acting(self, uid: str, target: str = "") -> Iterator[None]:
        """A step acts on the pod and refreshes it itself when it is done: its own events need no other refresh.
        `target`: the container or sandbox that it stops."""
        self._acting[uid].append(target)
        try:
            yield
        finally:
            self._acting[uid].remove(target)
            if not self._acting[uid]:
                del self._acting[uid]

    async def audit(self) -> None:
        """List and update all pods. Raises CriError.

        What has no UID that can be one is nobody's pod: it is not shown, and so never touched.
        """
        began, at = self.begin(), self._clock.monotonic()
        sandboxes, containers = await asyncio.gather(self._runtime.list_sandboxes(), self._runtime.list_containers())
        by_uid: defaultdict[str, tuple[list[SandboxState], list[ContainerState]]] = defaultdict(lambda: ([], []))
        for sandbox in sandboxes:
            by_uid[sandbox.uid][0].append(sandbox)
        for container in containers:
            by_uid[container.uid][1].append(container)
        limit = asyncio.Semaphore(_REFRESHES_AT_ONCE)
        uids = set(by_uid) | self.uids()
        await asyncio.gather(
            *(self.update_from_list(uid, by_uid.get(uid), began, limit) for uid in uids if is_uid(uid))
        )
        self.last_audit = self._clock.monotonic()
        self._metrics.relisted(self.last_audit - at, self._clock.now())
        self.audited.set()

    async def run_audits(self) -> None:
        """Until cancelled: audit at intervals, and at once whenever the stream of events broke."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                await self.audit()
                self._well()
                pause.reset()
                wait = AUDIT_INTERVAL if self._streaming else _BLIND_INTERVAL
            except CriError as error:
                self._failed(str(error))
                wait = pause.next()
            await self._rest(wait)

    async def run_events(self) -> None:
        """Until cancelled: follow the runtime's events; each is only a hint."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                stream = self._runtime.events()
                self._streaming = True
                async for event in stream:
                    pause.reset()
                    if not is_known(event, self.seen(event.uid), self._acting.get(event.uid, ())):
                        self.hint(event.uid, event.ended)
            except CriError as error:
                if error.code == "UNIMPLEMENTED":
                    log.warning("the runtime has no container events: pods are listed every %g s", _BLIND_INTERVAL)
                    self._streaming = False
                    await asyncio.Event().wait()
            self._streaming = False
            self._audit_now.set()
            await self._clock.sleep(pause.next())

    async def run_hints(self) -> None:
        """Until cancelled: refresh the pods with hints, a few at a time."""
        await side_by_side(**{f"hints_{number}": self._follow_hints() for number in range(_REFRESHES_AT_ONCE)})

    async def _follow_hints(self) -> None:
        while True:
            uid = await self._hints.get()
            ended = self._hinted.pop(uid)
            try:
                async with in_time(f"pod {uid}"):
                    if not await self.take(uid, ended):
                        await self.refresh(uid)
            except CriError as error:
                log.warning("pod %s: %s; the next audit lists it again", uid, error)
                self._audit_now.set()

    async def _rest(self, seconds: float) -> None:
        try:
            await at_most(self._clock, seconds, self._audit_now)
        finally:
            self._audit_now.clear()

    def _failed(self, message: str) -> None:
        if message != self.last_error:
            log.warning("the pods of the runtime cannot be listed: %s", message)
        self.last_error = message

    def _well(self) -> None:
        if self.last_error:
            log.info("the runtime answers again")
        self.last_error = ""
