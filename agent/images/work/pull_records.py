"""Who has had which image from its registry: in memory, and in files that outlive the agent.

The intent to pull is on disk before the pull begins, so that an image which came while the agent died is
never taken for one that was there before it. A pod that has not shown a credential pulls once more.
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

Credentials = Callable[[], Awaitable[list[PullCredential]]]


class PullRecords:
    """load() first. `pulling` and `pulled`: the folders of intents and of records."""

    def __init__(self, policy: VerifyPolicy, pulling: RecordStore, pulled: RecordStore, clock: Clock) -> None:
        self._policy, self._pulling, self._pulled, self._clock = policy, pulling, pulled, clock
        self._records: dict[str, PulledRecord] = {}
        self._intents: Counter[str] = Counter()

    async def load(self, images: Callable[[], Awaitable[Iterable[ImageFacts]]]) -> None:
        """What was recorded; a pull that was under way becomes a record if its image came. Raises Temporary."""
        for name in await self._pulled.names():
            try:
                record = plan.decode(await self._pulled.read(name) or "")
                self._records[record.image_id] = record
            except Invalid as error:
                log.warning("pull record %s is not used: its image will be asked for anew: %s", name, error)
        left = [name for name in await self._pulling.names() if name.startswith("sha256-")]
        if not left:
            return
        try:
            there = {name: one.id for one in await images() for name in (*one.repo_tags, *one.repo_digests)}
        except NodewrightError as error:
            log.warning("pulls that were under way are settled at the next start: %s", error)
            there = {}
        for name in left:
            await self._settle(name, there)

    async def must_pull(
        self, image: str, image_id: str, credentials: Callable[[], Awaitable[list[PullCredential]]]
    ) -> bool:
        """Whether the registry is to be asked although the image is there. `credentials`: those of the pod that fit."""
        record = self._records.get(image_id)
        if not self._policy.asks(image, pulled_here=record is not None or self._intents[image] > 0):
            return False
        if plan.is_known(record, image, ()):
            return False
        return not plan.is_known(record, image, await credentials())

    async def begin(self, image: str) -> None:
        """A pull is about to begin. Raises Temporary when that cannot be recorded."""
        await self._pulling.write(plan.file_name(image), plan.encode_intent(image))
        self._intents[image] += 1

    async def done(self, image: str, image_id: str, by: Collection[PullCredential]) -> None:
        """The image is there, had with these credentials (none: it took none)."""
        before = self._records.get(image_id)
        record = plan.granted(before, image_id, image, by, self._clock.now())
        try:
            if record is not before:
                await self._pulled.write(plan.file_name(image_id), plan.encode(record))
                self._records[image_id] = record
        except NodewrightError as error:
            log.warning("image %s: its next user asks the registry again: %s", image, error)
            return
        await self.failed(image)

    async def failed(self, image: str) -> None:
        """The pull is over."""
        self._intents[image] -= 1
        if self._intents[image] <= 0:
            del self._intents[image]
            try:
                await self._pulling.remove(plan.file_name(image))
            except NodewrightError as error:
                log.warning("intent to pull %s: %s", image, error)

    async def prune(self, left: Collection[str], began: float) -> None:
        """Forget images that were removed; `left`: ids of those that remain, looked at when it `began`."""
        for record in [one for one in self._records.values() if one.updated < began and one.image_id not in left]:
            await self._pulled.remove(plan.file_name(record.image_id))
            del self._records[record.image_id]

    async def _settle(self, name: str, there: dict[str, str]) -> None:
        try:
            image = plan.decode_intent(await self._pulling.read(name) or "")
        except Invalid as error:
            log.warning("pull intent %s is not used: %s", name, error)
            return
        image_id = there.get(image)
        if image_id is None:
            # It may be known to the runtime by its full name only: whoever wants it shows credentials.
            self._intents[image] += 1
            return
        if image_id not in self._records:
            record = plan.granted(None, image_id, image, None, self._clock.now())
            await self._pulled.write(plan.file_name(image_id), plan.encode(record))
            self._records[image_id] = record
        await self._pulling.remove(name)
