"""What all pods of the node are allocated and what of it is in force (actuated), in memory and in two checkpoints.

A pod's spec can change while no agent is running, and a resize can be interrupted. Only these files say then what
containers have. They are written soon after a change, and by save() before anything that could not be reconstructed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from agent.common.model.pods import Pod
from agent.common.ports import CheckpointStore
from agent.resources.model import Allocation, Sizes
from agent.resources.plan import actuated, allocation, checkpoint
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError
from nodelib.json_values import Json
from nodelib.threads import alone

log = logging.getLogger(__name__)

_PAUSE = 1.0  # seconds in which changes are collected for one write
_LONGEST_PAUSE = 30.0
_MANY = 2000  # amounts and claims; the text of more takes the event loop more than 10 ms
_REST = 4  # times as long as a write took passes until the next one


class Allocations:
    """Call load() first; run() writes changes until cancelled."""

    def __init__(self, files: CheckpointStore, clock: Clock) -> None:
        self._files, self._clock = files, clock
        self._entries: dict[str, dict[str, Allocation]] = {checkpoint.ALLOCATED: {}, checkpoint.ACTUATED: {}}
        self._changed: set[str] = set()
        self._wake = asyncio.Event()
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the checkpoints. An unreadable file is renamed, and its pods then have what their specs say."""
        for name in self._entries:
            text = await self._files.read(name)
            try:
                self._entries[name] = await alone(checkpoint.decode, text) if text is not None else {}
            except Invalid as error:
                kept = await self._files.set_aside(name)
                log.warning(
                    "%s cannot be used (kept as %s): %s; running pods count as their specs say",
                    name,
                    kept,
                    error,
                )

    def allocated(self, uid: str) -> Allocation | None:
        return self._entries[checkpoint.ALLOCATED].get(uid)

    def actuated(self, uid: str) -> Allocation | None:
        return self._entries[checkpoint.ACTUATED].get(uid)

    def applied(self, pod: Pod) -> Pod:
        """The pod with its allocated resources; unchanged if they are those of its spec or not known."""
        known = self.allocated(pod.uid)
        return pod if known is None else allocation.applied(pod, known)

    def in_force(self, pod: Pod) -> Pod:
        """The pod with the resources that were last put in force."""
        known = self.actuated(pod.uid)
        return pod if known is None else allocation.applied(pod, known)

    def admit(self, pod: Pod) -> None:
        """The pod is admitted with the resources of its spec. Known allocations stay."""
        stated = allocation.allocation_of(pod)
        if self.allocated(pod.uid) is None:
            self._set(checkpoint.ALLOCATED, pod.uid, stated)
        if self.actuated(pod.uid) is None:
            self._set(checkpoint.ACTUATED, pod.uid, stated)

    def allocate(self, pod: Pod) -> None:
        """Allocate what the pod's spec asks for."""
        self._set(checkpoint.ALLOCATED, pod.uid, allocation.allocation_of(pod))

    def started(self, pod: Pod, container: Json) -> None:
        """Record that a container of `pod` was created with its allocated resources."""
        known = self.actuated(pod.uid)
        if known is not None:
            self._set(checkpoint.ACTUATED, pod.uid, actuated.after_start(known, pod, container))

    def updated(self, uid: str, name: str, given: Sizes, stated: Json | None) -> None:
        """A running container was given these sizes."""
        known = self.actuated(uid)
        if known is not None:
            self._set(checkpoint.ACTUATED, uid, actuated.after_update(known, name, given, stated))

    def sized(self, uid: str, whole: Json | None) -> None:
        """The pod's own cgroup now has the pod-level resources `whole`."""
        known = self.actuated(uid)
        if known is not None:
            self._set(checkpoint.ACTUATED, uid, Allocation(known.containers, whole))

    def remove(self, uid: str) -> None:
        """The pod is gone. That alone is not worth a write: see keep()."""
        for entries in self._entries.values():
            entries.pop(uid, None)

    def keep(self, uids: Collection[str]) -> None:
        """Remove all pods but these."""
        for entries in self._entries.values():
            for uid in [uid for uid in entries if uid not in uids]:
                del entries[uid]

    async def save(self) -> None:
        """Return when everything is on disk. Raises Temporary."""
        async with self._writing:
            for name in sorted(self._changed):
                self._changed.discard(name)
                try:
                    await self._files.write(name, await _text(dict(self._entries[name])))
                except BaseException:
                    self._changed.add(name)
                    raise

    async def run(self) -> None:
        """Until cancelled: write changes, those of a second together."""
        pause = Backoff(_PAUSE, _LONGEST_PAUSE)
        while True:
            await self._wake.wait()
            await self._clock.sleep(pause.next())
            self._wake.clear()
            began = self._clock.monotonic()
            try:
                await self.save()
                pause.reset()
                await self._clock.sleep(_REST * (self._clock.monotonic() - began))
            except NodewrightError as error:
                log.warning("%s; next try in %g s", error, pause.current)
                self._wake.set()

    def _set(self, name: str, uid: str, found: Allocation) -> None:
        if self._entries[name].get(uid) != found:
            self._entries[name][uid] = found
            self._changed.add(name)
            self._wake.set()


async def _text(entries: Mapping[str, Allocation]) -> str:
    if checkpoint.size(entries) <= _MANY:
        return checkpoint.encode(entries)
    return await alone(checkpoint.encode, entries)
