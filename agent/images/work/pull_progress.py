"""The progress of running pulls: read from the runtime while they last, reported by events and on request.

Nothing is read while no pull takes long. A runtime without such an API is asked once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from agent.common.model.errors import PluginError
from agent.images.model.pulls import PullProgress
from agent.images.plan import pull_progress as plan
from agent.images.plan.pull_progress import Track
from agent.images.ports import ImageContent
from nodelib.clock import Clock

log = logging.getLogger(__name__)

_FRESH = 1.0  # seconds for which the progress is not read again


@dataclass(slots=True)
class _Pull:
    source: plan.Source
    began: float
    manifest: str = ""
    sizes: Mapping[str, int] = field(default_factory=dict)
    present: frozenset[str] = frozenset()
    track: Track = field(default_factory=Track)

    def progress(self, now: float) -> PullProgress:
        return plan.progress(self.track, sum(self.sizes.values()), now)


class PullWatcher:
    """Follows pulls, by any key. End it with close()."""

    def __init__(self, content: ImageContent, clock: Clock) -> None:
        self._content, self._clock = content, clock
        self._pulls: dict[object, _Pull] = {}
        self._refreshing = asyncio.Lock()
        self._refreshed = float("-inf")
        self._unsupported = False

    @contextlib.asynccontextmanager
    async def watching(self, key: object, reference: str, report: Callable[[str], None]) -> AsyncIterator[None]:
        """While the body pulls `reference`: `report` is called now and then with the progress as text."""
        self._pulls[key] = _Pull(plan.source_of(reference), self._clock.now())
        task = asyncio.create_task(self._follow(key, report), name=f"pull-progress/{reference}")
        try:
            yield
        finally:
            self._pulls.pop(key, None)
            task.cancel()
            (ended,) = await asyncio.gather(task, return_exceptions=True)
            if isinstance(ended, Exception):
                log.error("following the pull of %s failed", reference, exc_info=ended)

    async def refresh(self) -> None:
        """Refresh progress(). Errors of the runtime are only logged."""
        async with self._refreshing:
            if not self._pulls or self._unsupported or self._clock.monotonic() - self._refreshed < _FRESH:
                return
            self._refreshed = self._clock.monotonic()
            try:
                await self._read()
            except PluginError as error:
                self._unsupported = error.code == "UNIMPLEMENTED"
                log.log(
                    logging.INFO if self._unsupported else logging.DEBUG,
                    "the progress of pulls cannot be read: %s",
                    error,
                )

    def progress(self, key: object) -> PullProgress:
        """As of the last refresh()."""
        pull = self._pulls.get(key)
        return pull.progress(self._clock.monotonic()) if pull is not None else PullProgress()

    async def close(self) -> None:
        await self._content.close()

    async def _read(self) -> None:
        # What is being written comes first: a blob that is complete by the second call is then counted once.
        writing = await self._content.under_way()
        for pull in list(self._pulls.values()):
            if not pull.sizes:
                there = await self._content.manifests(pull.source.host, pull.source.repository)
                pull.manifest = plan.chosen(pull.source, pull.began, there, writing)
                pull.sizes = await self._content.sizes(pull.manifest) if pull.manifest else {}
            if pull.sizes:
                pull.present |= await self._content.present(pull.sizes.keys() - pull.present - writing.keys())
                there_now = plan.done(pull.sizes, writing, pull.present)
                pull.track = plan.tracked(pull.track, self._clock.monotonic(), there_now)

    async def _follow(self, key: object, report: Callable[[str], None]) -> None:
        asked, reported = self._clock.monotonic(), list[float]()
        while not self._unsupported:
            await self._clock.sleep(plan.REFRESH_EVERY)
            await self.refresh()
            now = self._clock.monotonic()
            text = plan.progress_text(self.progress(key))
            if text and now >= plan.next_report(asked, reported):
                reported.append(now)
                report(text)
