"""The newest view of each pod in the runtime, and how it is refreshed without ever going back to an older one.

Details (exit codes, addresses) are asked for only when an id or a state is new. Refreshes of one pod run one after the
other, and a list never replaces a newer view. A pod whose details the runtime does not give keeps its older view; until
there is a first one it is unclear, and nobody may take it for a pod without containers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace

from agent.common.model.errors import CriError, CriNotFound, CriUnavailable
from agent.common.model.pods import ContainerState, ObservedPod, RunState, SandboxState
from agent.common.ports import PodFiles
from agent.runtime.ports import RuntimeService
from nodelib.key_locks import KeyLocks

log = logging.getLogger(__name__)

_LIMIT = 20.0  # seconds for the details of one pod, where many are looked at: others wait for their turn
OnSeen = Callable[[ObservedPod], None]


class Views:
    """The newest view of every pod; follow() what changes."""

    def __init__(self, runtime: RuntimeService, files: PodFiles) -> None:
        self._runtime, self._files = runtime, files
        self._on_seen: list[OnSeen] = []
        self._pods: dict[str, ObservedPod] = {}
        self._sequence = 0
        self._refreshed: dict[str, int] = {}  # when the newest refresh of a whole pod began
        self._changed: dict[str, int] = {}  # when the newest refresh of a pod or a part of it began
        self._unclear: set[str] = set()
        self._locks = KeyLocks[str]()

    def follow(self, on_seen: OnSeen) -> None:
        """Call `on_seen` with a pod's view whenever it differs from the one before."""
        self._on_seen.append(on_seen)

    def seen(self, uid: str) -> ObservedPod:
        """The newest view; an empty one for a pod that the runtime does not know."""
        return self._pods.get(uid) or ObservedPod(uid)

    def uids(self) -> frozenset[str]:
        """Every pod that the runtime has a sandbox or container of."""
        return frozenset(self._pods.keys() | self._unclear)

    def is_unclear(self, uid: str) -> bool:
        """Whether the runtime has this pod, but has not said yet what is in it."""
        return uid in self._unclear

    async def refresh(self, uid: str) -> ObservedPod:
        """Refresh one pod now; another refresh that begins after this call serves as well. Raises CriError."""
        arrived = self._sequence
        async with self._locks.of(uid):
            if self._refreshed.get(uid, 0) > arrived:
                return self.seen(uid)
            return await self._refresh(uid)

    async def reinspect(self, uid: str) -> ObservedPod:
        """Refresh one pod now, with the resources of its containers, which no event reports. Raises CriError."""
        async with self._locks.of(uid):
            return await self._refresh(uid, afresh=True)

    async def refresh_one(self, uid: str, *, sandbox: str = "", container: str = "") -> None:
        """Refresh one sandbox, or one container (in `sandbox`, where it is new), because a step has created or stopped
        it and has done nothing else. Raises CriError."""
        async with self._locks.of(uid):
            began = self.begin()
            if container:
                known = self.seen(uid).container(container)
                found = await self._container_now(container, sandbox or (known.sandbox_id if known else ""))
                self._put(uid, began, container, found)
            else:
                self._put(uid, began, sandbox, await self._sandbox_now(sandbox))

    async def removed(self, uid: str, target: str) -> None:
        """The runtime has removed this sandbox or container."""
        async with self._locks.of(uid):
            self._put(uid, self.begin(), target, None)

    async def take(self, uid: str, reported: list[ContainerState | None]) -> bool:
        """Store exits as events reported them; False if they reported anything else (None) or an unknown container."""
        async with self._locks.of(uid):
            known = {one.id: one for one in self.seen(uid).containers}
            ran = {one.id for one in known.values() if one.state in (RunState.RUNNING, RunState.EXITED)}
            ended = {one.id: one for one in reported if one is not None}
            if None in reported or not ended.keys() <= ran:
                return False
            for name, one in ended.items():
                if known[name].state is RunState.RUNNING:
                    full = await self._with_message(replace(one, sandbox_id=known[name].sandbox_id))
                    self._put(uid, self.begin(), name, full)
            return True

    def begin(self) -> int:
        """The number of a refresh that begins now."""
        self._sequence += 1
        return self._sequence

    async def _refresh(self, uid: str, *, afresh: bool = False) -> ObservedPod:
        began = self.begin()
        sandboxes, containers = await asyncio.gather(
            self._runtime.list_sandboxes(uid), self._runtime.list_containers(uid)
        )
        view = await self._detailed(uid, sandboxes, containers, afresh=afresh)
        self._store(view, began, whole=True)
        return view

    async def update_from_list(
        self,
        uid: str,
        found: tuple[list[SandboxState], list[ContainerState]] | None,
        began: int,
        limit: asyncio.Semaphore,
    ) -> None:
        """Update the view with what a list `found` of the pod. What fails is logged: the next list tries it again.

        `began`: the number that begin() gave the list; `limit` bounds the calls for details.
        """
        if self._changed.get(uid, 0) > began:
            return
        sandboxes, containers = found or ([], [])
        if found is not None and self._same(uid, sandboxes, containers):
            return
        try:
            async with limit, in_time(f"pod {uid}"), self._locks.of(uid):
                if self._changed.get(uid, 0) > began:
                    return
                self._store(await self._detailed(uid, sandboxes, containers), began, whole=True)
        except CriError as error:
            self._not_shown(uid, str(error))
        except Exception as error:  # one pod whose answers we cannot understand must not hide the others
            log.exception("pod %s: the runtime's answer is not understood", uid)
            self._not_shown(uid, str(error))

    def _not_shown(self, uid: str, why: str) -> None:
        if uid in self._pods or uid in self._unclear:
            log.info("pod %s: the runtime does not show it: %s", uid, why)
            return
        self._unclear.add(uid)
        log.warning("pod %s: the runtime does not show it: %s; its containers are left alone", uid, why)

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
        return _pod(uid, (one for one in full_boxes if one), (one for one in full if one))

    async def _sandbox(self, listed: SandboxState, known: SandboxState | None) -> SandboxState | None:
        if known is not None and known.ready == listed.ready:
            return known
        return await self._sandbox_now(listed.id)

    async def _sandbox_now(self, sandbox_id: str) -> SandboxState | None:
        try:
            return await self._runtime.sandbox_status(sandbox_id)
        except CriNotFound:
            return None

    async def _container(self, listed: ContainerState, known: ContainerState | None) -> ContainerState | None:
        if known is not None and known.state is listed.state:
            return known
        return await self._container_now(listed.id, listed.sandbox_id)

    async def _container_now(self, container_id: str, sandbox_id: str) -> ContainerState | None:
        try:
            full = await self._runtime.container_status(container_id)
        except CriNotFound:
            return None
        return await self._with_message(replace(full, sandbox_id=sandbox_id))

    async def _with_message(self, one: ContainerState) -> ContainerState:
        if one.state is not RunState.EXITED:
            return one
        text = await self._files.termination_message(one)
        return replace(one, message=": ".join(part for part in (one.message, text) if part))

    def _put(self, uid: str, began: int, what: str, found: SandboxState | ContainerState | None) -> None:
        """Replace the sandbox or container `what`; None: it was removed."""
        known = self.seen(uid)
        boxes = [one for one in known.sandboxes if one.id != what]
        containers = [one for one in known.containers if one.id != what]
        if isinstance(found, SandboxState):
            boxes.append(found)
        elif found is not None:
            containers.append(found)
        self._store(_pod(uid, boxes, containers), began)

    def _store(self, view: ObservedPod, began: int, *, whole: bool = False) -> None:
        self._changed[view.uid] = began
        if whole:
            self._refreshed[view.uid] = began
        before = self._pods.get(view.uid)
        if view.sandboxes or view.containers:
            self._pods[view.uid] = view
        else:
            for one in (self._pods, self._refreshed, self._changed):
                one.pop(view.uid, None)
        was_unclear = view.uid in self._unclear
        self._unclear.discard(view.uid)
        if was_unclear or view != (before or ObservedPod(view.uid)):
            for on_seen in self._on_seen:
                on_seen(view)


@contextlib.asynccontextmanager
async def in_time(obj: str) -> AsyncIterator[None]:
    """Raises CriUnavailable when the block takes longer than one pod among many may take."""
    try:
        async with asyncio.timeout(_LIMIT):
            yield
    except TimeoutError:
        raise CriUnavailable(f"no answer in {_LIMIT:g} s", code="DEADLINE_EXCEEDED", obj=obj) from None


def _pod(uid: str, sandboxes: Iterable[SandboxState], containers: Iterable[ContainerState]) -> ObservedPod:
    return ObservedPod(
        uid,
        tuple(sorted(sandboxes, key=lambda one: -one.created_at)),
        tuple(sorted(containers, key=lambda one: -one.created_at)),
    )
