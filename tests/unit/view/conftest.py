"""The page of a small cluster, and a browser that has it open."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.browser import Browser, chromium, driven
from tests.unit.view.world import LIVE, Page, page, shop


@pytest.fixture
async def here() -> AsyncIterator[Page]:
    async with page() as found:
        await shop(found.api)
        yield found


@pytest.fixture(scope="module")
def window() -> Iterator[str]:
    with chromium() as found:
        yield found


@pytest.fixture
async def browser(here: Page, window: str) -> AsyncIterator[Browser]:
    async with driven(window) as found:
        await found.open(here.url)
        await found.until(f"{LIVE} && document.querySelectorAll('tbody tr').length === 5")
        yield found
