"""The runtime's view of every pod, kept fresh: CRI lists are the truth, events only say where to look.

One pod is looked at afresh after each step of its worker and at each event about it; all of
them together every so often (the audit). Details (exit codes, addresses) are asked for only
when an id or a state is new. Looks at one pod never overtake each other, and an audit never
puts an older view in the place of a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from agent.errors import CriError, CriNotFound
from agent.figures import Figures, Unmeasured
from agent.model.pods import ContainerState, ObservedPod, RunState, SandboxState
from agent.ports import Files, Runtime, RuntimeEvent
from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most

log = logging.getLogger(__name__)

AUDIT_INTERVAL = 10.0  # seconds, with an event stream
_BLIND_INTERVAL = 1.0  # seconds, without one
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0  # seconds
_SIGHTS_AT_ONCE = 8

OnSeen = Callable[[ObservedPod], None]


class Observer:
    """`on_seen` is called with a pod's view whenever it is not the one before."""

    def __init__(
        self, runtime: Runtime, files: Files, clock: Clock, on_seen: OnSeen, figures: Figures | None = None
    ) -> None:
        self._runtime, self._files, self._clock = runtime, files, clock
        self._figures = figures or Unmeasured()
        self._on_seen = on_seen
        self._pods: dict[str, ObservedPod] = {}
        self._sequence = 0
        self._looked: dict[str, int] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._hints: asyncio.Queue[str] = asyncio.Queue()
        self._hinted: set[str] = set()
        self._acting: defaultdict[str, list[str]] = defaultdict(list)
        self._streaming = False
        self._audit_now = asyncio.Event()
        self.audited = asyncio.Event()
        self.last_audit = 0.0
        self.last_error = ""

    def seen(self, uid: str) -> ObservedPod:
        """The newest view; an empty one of a pod that the runtime does not know."""
        return self._pods.get(uid) or ObservedPod(uid)

    def uids(self) -> frozenset[str]:
        """Every pod of which the runtime has anything."""
        return frozenset(self._pods)

    def hint(self, uid: str) -> None:
        """Something may have happened to this pod: look soon, without waiting here."""
        if uid and uid not in self._hinted:
            self._hinted.add(uid)
            self._hints.put_nowait(uid)

    @contextlib.contextmanager
    def acting(self, uid: str, target: str = "") -> Iterator[None]:
        """A step acts on the pod, and will look itself when it is done: events of what it does need no other look.
        `target`: the container or sandbox that it stops."""
        self._acting[uid].append(target)
        try:
            yield
        finally:
            self._acting[uid].remove(target)
            if not self._acting[uid]:
                del self._acting[uid]

    async def refresh(self, uid: str) -> ObservedPod:
        """Look at one pod now; a look that began after this call serves as well. Raises CriError."""
        arrived = self._sequence
        async with self._locks[uid]:
            if self._looked.get(uid, 0) > arrived:
                return self.seen(uid)
            return await self._look(uid)

    async def reinspect(self, uid: str) -> ObservedPod:
        """Look at one pod now, at what its containers were given too: no event tells of that. Raises CriError."""
        async with self._locks[uid]:
            return await self._look(uid, afresh=True)

    async def audit(self) -> None:
        """Look at all pods at once. Raises CriError."""
        self._sequence += 1
        began, at = self._sequence, self._clock.monotonic()
        sandboxes, containers = await asyncio.gather(self._runtime.list_sandboxes(), self._runtime.list_containers())
        by_uid: defaultdict[str, tuple[list[SandboxState], list[ContainerState]]] = defaultdict(lambda: ([], []))
        for sandbox in sandboxes:
            by_uid[sandbox.uid][0].append(sandbox)
        for container in containers:
            by_uid[container.uid][1].append(container)
        limit = asyncio.Semaphore(_SIGHTS_AT_ONCE)
        uids = set(by_uid) | set(self._pods)
        await asyncio.gather(*(self._settle(uid, by_uid.get(uid), began, limit) for uid in uids if uid))
        self.last_audit = self._clock.monotonic()
        self._figures.relisted(self.last_audit - at, self._clock.now())
        self.audited.set()

    async def run_audits(self) -> None:
        """Until cancelled: the periodic look at everything, and one at once whenever the stream of events broke."""
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
        """Until cancelled: follow the runtime's events; every one is a hint and nothing more."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                stream = self._runtime.events()
                self._streaming = True
                async for event in stream:
                    pause.reset()
                    if not self._told_already(event):
                        self.hint(event.uid)
            except CriError as error:
                if error.code == "UNIMPLEMENTED":
                    log.warning("the runtime has no container events: pods are listed every %g s", _BLIND_INTERVAL)
                    self._streaming = False
                    await asyncio.Event().wait()
            self._streaming = False
            self._audit_now.set()
            await self._clock.sleep(pause.next())

    async def run_hints(self) -> None:
        """Until cancelled: look at the pods that were hinted at, a few at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_SIGHTS_AT_ONCE):
                group.create_task(self._follow_hints())

    async def _follow_hints(self) -> None:
        while True:
            uid = await self._hints.get()
            self._hinted.discard(uid)
            try:
                await self.refresh(uid)
            except CriError as error:
                log.warning("pod %s: %s; the next audit looks again", uid, error)
                self._audit_now.set()

    async def _rest(self, seconds: float) -> None:
        try:
            await at_most(self._clock, seconds, self._audit_now)
        finally:
            self._audit_now.clear()

    async def _look(self, uid: str, *, afresh: bool = False) -> ObservedPod:
        self._sequence += 1
        began = self._sequence
        sandboxes, containers = await asyncio.gather(
            self._runtime.list_sandboxes(uid), self._runtime.list_containers(uid)
        )
        view = await self._detailed(uid, sandboxes, containers, afresh=afresh)
        self._store(view, began)
        return view

    async def _settle(
        self,
        uid: str,
        found: tuple[list[SandboxState], list[ContainerState]] | None,
        began: int,
        limit: asyncio.Semaphore,
    ) -> None:
        if self._looked.get(uid, 0) > began:
            return
        sandboxes, containers = found or ([], [])
        if found is not None and self._same(uid, sandboxes, containers):
            return
        async with limit, self._locks[uid]:
            if self._looked.get(uid, 0) > began:
                return
            self._store(await self._detailed(uid, sandboxes, containers), began)

    def _same(self, uid: str, sandboxes: Iterable[SandboxState], containers: Iterable[ContainerState]) -> bool:
        known = self._pods.get(uid)
        if known is None:
            return False
        before = {one.id: one.ready for one in known.sandboxes} | {one.id: one.state for one in known.containers}
        return before == {one.id: one.ready for one in sandboxes} | {one.id: one.state for one in containers}

    async def _detailed(
        self,
        uid: str,
        sandboxes: Iterable[SandboxState],
        containers: Iterable[ContainerState],
        *,
        afresh: bool = False,
    ) -> ObservedPod:
        known = self.seen(uid)
        boxes = {one.id: one for one in known.sandboxes}
        kept = (one for one in known.containers if not afresh or one.state is RunState.EXITED)
        attempts = {one.id: one for one in kept}
        full_boxes, full = await asyncio.gather(
            asyncio.gather(*(self._sandbox(one, boxes.get(one.id)) for one in sandboxes)),
            asyncio.gather(*(self._container(one, attempts.get(one.id)) for one in containers)),
        )
        return ObservedPod(
            uid,
            tuple(sorted((one for one in full_boxes if one), key=lambda one: -one.created_at)),
            tuple(sorted((one for one in full if one), key=lambda one: -one.created_at)),
        )

    async def _sandbox(self, listed: SandboxState, known: SandboxState | None) -> SandboxState | None:
        if known is not None and known.ready == listed.ready:
            return known
        try:
            return await self._runtime.sandbox_status(listed.id)
        except CriNotFound:
            return None

    async def _container(self, listed: ContainerState, known: ContainerState | None) -> ContainerState | None:
        if known is not None and known.state is listed.state:
            return known
        try:
            full = await self._runtime.container_status(listed.id)
        except CriNotFound:
            return None
        full = replace(full, sandbox_id=listed.sandbox_id)
        if full.state is not RunState.EXITED:
            return full
        words = await self._files.termination_message(full)
        return replace(full, message=": ".join(part for part in (full.message, words) if part))

    def _store(self, view: ObservedPod, began: int) -> None:
        self._looked[view.uid] = began
        before = self._pods.get(view.uid)
        if view.sandboxes or view.containers:
            self._pods[view.uid] = view
        else:
            self._pods.pop(view.uid, None)
            self._looked.pop(view.uid, None)
            if not self._locks[view.uid].locked():
                self._locks.pop(view.uid, None)
        if view != (before or ObservedPod(view.uid)):
            self._on_seen(view)

    def _told_already(self, event: RuntimeEvent) -> bool:
        # The worker's own step has looked already, or is about to: what it does comes back as events too.
        targets = self._acting.get(event.uid, ())
        if targets and (event.type != "CONTAINER_STOPPED_EVENT" or event.container_id in targets):
            return True
        view = self.seen(event.uid)
        one = next((one for one in view.containers if one.id == event.container_id), None)
        box = next((one for one in view.sandboxes if one.id == event.container_id), None)
        if event.type == "CONTAINER_CREATED_EVENT":
            return one is not None or box is not None
        if event.type == "CONTAINER_STARTED_EVENT":
            return (one is not None and one.state is not RunState.CREATED) or (box is not None and box.ready)
        if event.type == "CONTAINER_STOPPED_EVENT":
            return (one is not None and one.state is RunState.EXITED) or (box is not None and not box.ready)
        return event.type == "CONTAINER_DELETED_EVENT" and one is None and box is None

    def _failed(self, message: str) -> None:
        if message != self.last_error:
            log.warning("looking at the runtime failed: %s", message)
        self.last_error = message

    def _well(self) -> None:
        if self.last_error:
            log.info("the runtime answers again")
        self.last_error = ""
