"""Pods on their way out, in memory and in a checkpoint: an agent that is started again goes on where it was.

What is over within a second is never written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from agent.common.ports import CheckpointStore
from agent.pods.model.facts import Termination
from agent.pods.plan import termination_record as ending_record
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError

log = logging.getLogger(__name__)

NAME = "pod_endings"
_PAUSE = 1.0  # seconds in which changes are gathered into one write


class Terminations:
    """load() first; run() writes what has changed until cancelled."""

    def __init__(self, files: CheckpointStore, clock: Clock) -> None:
        self._files, self._clock = files, clock
        self._known: dict[str, Termination] = {}
        self._written: dict[str, Termination] = {}
        self._wake = asyncio.Event()

    async def load(self) -> None:
        """What was written last; a file that cannot be understood is kept aside: those pods get their grace anew."""
        text = await self._files.read(NAME)
        try:
            self._known = ending_record.decode(text) if text is not None else {}
        except Invalid as error:
            kept = await self._files.set_aside(NAME)
            log.warning("%s is not used (kept as %s): %s", NAME, kept, error)
        self._written = dict(self._known)

    def of(self, uid: str) -> Termination | None:
        """How the pod was ending when it was last told."""
        found = self._known.get(uid)
        return None if found is None else ending_record.restored(found, self._clock.now())

    def record(self, uid: str, termination: Termination | None) -> None:
        """The pod ends like this now."""
        if termination is not None and ending_record.is_remembered(termination) and self._known.get(uid) != termination:
            self._known[uid] = termination
            self._wake.set()

    def remove(self, uid: str) -> None:
        """The pod is gone."""
        if self._known.pop(uid, None) is not None and uid in self._written:
            self._wake.set()

    def keep(self, uids: Collection[str]) -> None:
        """RemovePod all other pods."""
        for uid in self._known.keys() - set(uids):
            self.remove(uid)

    async def run(self) -> None:
        """Until cancelled: write what has changed, changes of a second together."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(_PAUSE)
            self._wake.clear()
            now = dict(self._known)
            if now == self._written:
                continue
            try:
                await self._files.write(NAME, ending_record.encode(now))
                self._written = now
            except NodewrightError as error:
                log.warning("a pod's grace would start anew with the agent: %s", error)
                self._wake.set()
