"""The records of pulled images, in memory and in files: who may use an image without asking its registry again.

The intent to pull is written before the pull begins, so that an image whose pull outlived the agent is never taken for
a preloaded one. A pod whose credentials are not recorded pulls the image again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable

from agent.common.model.pods import ImageFacts
from agent.images.model.pulls import PullCredential, PulledRecord
from agent.images.plan import pull_records as plan
from agent.images.plan.pull_records import VerifyPolicy
from agent.images.ports import RecordStore
from nodelib.clock import Clock
from nodelib.errors import Invalid, NodewrightError

log = logging.getLogger(__name__)


class PullRecords:
    """Call load() first. `pulling` and `pulled`: the directories of intents and of records."""

    def __init__(self, policy: VerifyPolicy, pulling: RecordStore, pulled: RecordStore, clock: Clock) -> None:
        self._policy, self._pulling, self._pulled, self._clock = policy, pulling, pulled, clock
        self._records: dict[str, PulledRecord] = {}
        self._intents: Counter[str] = Counter()

    async def load(self, images: Callable[[], Awaitable[Iterable[ImageFacts]]]) -> None:
        """Read the records; an interrupted pull becomes a record if its image is there. Raises Temporary."""
        for name in await _record_names(self._pulled):
            try:
                record = plan.decode(await self._pulled.read(name) or "")
                self._records[record.image_id] = record
            except Invalid as error:
                log.warning("pull record %s cannot be used, so its image will be pulled again: %s", name, error)
        interrupted = await _record_names(self._pulling)
        if not interrupted:
            return
        try:
            there = {name: one.id for one in await images() for name in (*one.repo_tags, *one.repo_digests)}
        except NodewrightError as error:
            log.warning("interrupted pulls are recorded at the next start: %s", error)
            there = {}
        for name in interrupted:
            await self._settle(name, there)

    async def must_pull(
        self, image: str, image_id: str, credentials: Callable[[], Awaitable[list[PullCredential]]]
    ) -> bool:
        """Whether to pull although the image is there. `credentials()`: those of the pod that match the image."""
        record = self._records.get(image_id)
        if not self._policy.asks(image, pulled_here=record is not None or self._intents[image] > 0):
            return False
        if plan.is_known(record, image, ()):
            return False
        return not plan.is_known(record, image, await credentials())

    async def begin(self, image: str) -> None:
        """Record that a pull is about to begin. Raises Temporary."""
        await self._pulling.write(plan.file_name(image), plan.encode_intent(image))
        self._intents[image] += 1

    async def done(self, image: str, image_id: str, by: Collection[PullCredential]) -> None:
        """Record that the image was pulled with these credentials (empty: without any)."""
        before = self._records.get(image_id)
        record = plan.granted(before, image_id, image, by, self._clock.now())
        try:
            if record is not before:
                await self._pulled.write(plan.file_name(image_id), plan.encode(record))
                self._records[image_id] = record
        except NodewrightError as error:
            log.warning("image %s: the pull could not be recorded, so the next pod pulls it again: %s", image, error)
            return
        await self.failed(image)

    async def failed(self, image: str) -> None:
        """Drop the intent: the pull is over."""
        self._intents[image] -= 1
        if self._intents[image] <= 0:
            del self._intents[image]
            try:
                await self._pulling.remove(plan.file_name(image))
            except NodewrightError as error:
                log.warning("the intent to pull %s could not be removed: %s", image, error)

    async def prune(self, remaining: Collection[str], began: float) -> None:
        """Remove the records of removed images. `remaining`: ids of the images that existed when it `began`."""
        for record in [one for one in self._records.values() if one.updated < began and one.image_id not in remaining]:
            await self._pulled.remove(plan.file_name(record.image_id))
            del self._records[record.image_id]

    async def _settle(self, name: str, there: dict[str, str]) -> None:
        try:
            image = plan.decode_intent(await self._pulling.read(name) or "")
        except Invalid as error:
            log.warning("pull intent %s cannot be used: %s", name, error)
            return
        image_id = there.get(image)
        if image_id is None:
            # The runtime may know it only by its full name: pods have to show credentials for it.
            self._intents[image] += 1
            return
        if image_id not in self._records:
            record = plan.granted(None, image_id, image, None, self._clock.now())
            await self._pulled.write(plan.file_name(image_id), plan.encode(record))
            self._records[image_id] = record
        await self._pulling.remove(name)


async def _record_names(store: RecordStore) -> list[str]:
    """Of the files that are records. Others are not looked at, as with upstream (pullmanager/fs_pullrecords.go), so
    that one is put aside by giving it another name. Raises Temporary."""
    return [name for name in await store.names() if name.startswith("sha256-")]
