"""How far the pulls under way are: looked at while they last, told by events, and afresh to who asks.

Nothing is asked of the runtime while no pull takes long. A runtime that cannot tell is asked once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from agent.common.model.errors import PluginError
from agent.images.model.pulls import PullFigures
from agent.images.plan import pull_progress as plan
from agent.images.plan.pull_progress import Track
from agent.images.ports import ImageContent
from nodelib.clock import Clock

log = logging.getLogger(__name__)

_FRESH = 1.0  # seconds that one look is good for


@dataclass(slots=True)
class _Pull:
    source: plan.Source
    began: float
    manifest: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    track: Track = field(default_factory=Track)

    def figures(self, now: float) -> PullFigures:
        return plan.figures(self.track, sum(self.sizes.values()), now)


class PullWatch:
    """Owner of what was seen of each pull, by any key."""

    def __init__(self, content: ImageContent, clock: Clock) -> None:
        self._content, self._clock = content, clock
        self._pulls: dict[object, _Pull] = {}
        self._looking = asyncio.Lock()
        self._looked = float("-inf")
        self._told_nothing = False

    @contextlib.asynccontextmanager
    async def watching(self, key: object, reference: str, tell: Callable[[str], None]) -> AsyncIterator[None]:
        """While the body pulls `reference`: `tell` is called now and then with how far it is."""
        self._pulls[key] = _Pull(plan.source_of(reference), self._clock.now())
        task = asyncio.create_task(self._follow(key, tell), name=f"pull-progress/{reference}")
        try:
            yield
        finally:
            self._pulls.pop(key, None)
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(ended, Exception):
                log.error("progress of %s", reference, exc_info=ended)

    async def look(self) -> None:
        """Make figures() fresh; an answer that does not come is let go."""
        async with self._looking:
            if not self._pulls or self._told_nothing or self._clock.monotonic() - self._looked < _FRESH:
                return
            self._looked = self._clock.monotonic()
            try:
                await self._look()
            except PluginError as error:
                self._told_nothing = error.code == "UNIMPLEMENTED"
                log.log(logging.INFO if self._told_nothing else logging.DEBUG, "no progress of pulls: %s", error)

    def figures(self, key: object) -> PullFigures:
        """As of the newest look."""
        pull = self._pulls.get(key)
        return pull.figures(self._clock.now()) if pull is not None else PullFigures()

    async def close(self) -> None:
        await self._content.close()

    async def _look(self) -> None:
        # What is written first: a blob that is whole by the second question is counted once.
        writing = await self._content.under_way()
        for pull in list(self._pulls.values()):
            if not pull.sizes:
                there = await self._content.manifests(pull.source.host, pull.source.repository)
                pull.manifest = plan.chosen(pull.source, pull.began, there, writing)
                pull.sizes = await self._content.sizes(pull.manifest) if pull.manifest else {}
            if pull.sizes:
                pull.present |= await self._content.present(pull.sizes.keys() - pull.present - writing.keys())
                there_now = plan.done(pull.sizes, writing, pull.present)
                pull.track = plan.tracked(pull.track, self._clock.now(), there_now)

    async def _follow(self, key: object, tell: Callable[[str], None]) -> None:
        asked, told = self._clock.now(), list[float]()
        while not self._told_nothing:
            await self._clock.sleep(plan.LOOK_EVERY)
            await self.look()
            now = self._clock.now()
            text = plan.words(self.figures(key))
            if text and now >= plan.next_told(asked, told):
                told.append(now)
                tell(text)
