"""Terminations of pods, in memory and in a checkpoint, so that a restarted agent goes on with the same grace.

A termination that takes less than a second is never written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from agent.common.ports import CheckpointStore
from agent.pods.model.facts import Termination
from agent.pods.plan import termination_record
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError

log = logging.getLogger(__name__)

NAME = "pod_endings"
_PAUSE = 1.0  # seconds for which changes are collected into one write


class Terminations:
    """Call load() first; run() writes changes until cancelled."""

    def __init__(self, files: CheckpointStore, clock: Clock) -> None:
        self._files, self._clock = files, clock
        self._known: dict[str, Termination] = {}
        self._written: dict[str, Termination] = {}
        self._wake = asyncio.Event()

    async def load(self) -> None:
        """Read the checkpoint. One that cannot be decoded is set aside: those pods get a new grace."""
        text = await self._files.read(NAME)
        try:
            self._known = termination_record.decode(text, self._now()) if text is not None else {}
        except Invalid as error:
            kept = await self._files.set_aside(NAME)
            log.warning("%s is not used (kept as %s): %s", NAME, kept, error)
        self._written = dict(self._known)

    def of(self, uid: str) -> Termination | None:
        """The termination that was last recorded for the pod."""
        return self._known.get(uid)

    def record(self, uid: str, termination: Termination | None) -> None:
        """The pod terminates like this now."""
        if (
            termination is not None
            and termination_record.is_recorded(termination)
            and self._known.get(uid) != termination
        ):
            self._known[uid] = termination
            self._wake.set()

    def remove(self, uid: str) -> None:
        """The pod is gone."""
        if self._known.pop(uid, None) is not None and uid in self._written:
            self._wake.set()

    def keep(self, uids: Collection[str]) -> None:
        """Forget the terminations of all other pods."""
        for uid in self._known.keys() - set(uids):
            self.remove(uid)

    def _now(self) -> termination_record.Moment:
        return termination_record.Moment(self._clock.now(), self._clock.monotonic(), self._clock.steady())

    async def run(self) -> None:
        """Until cancelled: write changes, those of a second together."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(_PAUSE)
            self._wake.clear()
            now = dict(self._known)
            if now == self._written:
                continue
            try:
                await self._files.write(NAME, termination_record.encode(now, self._now()))
                self._written = now
            except NodewrightError as error:
                log.warning("terminations are not saved, a restart would give these pods a new grace: %s", error)
                self._wake.set()
