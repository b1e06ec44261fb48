"""The images that the Node's status lists, asked for at most every 30 s."""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from agent.common.model.pods import ImageFacts
from nodelib.clock import Clock
from nodelib.errors import NodewrightError

log = logging.getLogger(__name__)

_MAX_AGE = 30.0  # seconds


class Images(Protocol):
    """runtime/model.py ImageService."""

    async def list_images(self) -> tuple[ImageFacts, ...]: ...


class ImageList:
    """`limit`: seconds that the runtime may take for an answer."""

    def __init__(self, images: Images, clock: Clock, limit: float) -> None:
        self._images, self._clock, self._limit = images, clock, limit
        self._listed: tuple[ImageFacts, ...] = ()
        self._asked_at: float | None = None

    async def newest(self) -> tuple[ImageFacts, ...]:
        """List the images again if the list is too old; without an answer, return the old list. Never raises."""
        now = self._clock.monotonic()
        if self._asked_at is not None and now - self._asked_at < _MAX_AGE:
            return self._listed
        try:
            async with asyncio.timeout(self._limit):
                self._listed = await self._images.list_images()
        except TimeoutError:
            # The status is more urgent than its list of images: the very next status must not wait for it again.
            log.warning("the runtime did not list its images in %g s", self._limit)
        except NodewrightError as error:
            log.debug("images cannot be listed now: %s", error)
            return self._listed
        self._asked_at = now
        return self._listed
