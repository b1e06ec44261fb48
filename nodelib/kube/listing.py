"""Lists for commands that are run once: page by page, as far as their fields can be read, and not without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from nodelib.json_values import Json
from nodelib.kube import shapes
from nodelib.kube.client import SMALLEST_PAGE, KubeClient
from nodelib.kube.errors import UnexpectedAnswer

MOST = 20_000  # objects of one list
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects; `whole`: the API server has no others."""

    items: tuple[Json, ...]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Page:
    """Objects as the API server gives them, what they are, and whether it has no others behind them."""

    items: list[Json]
    kind: str
    last: bool


async def listed(client: KubeClient, path: str, most: int = MOST) -> Listed:
    """At most `most` objects of a collection, without what nothing here reads of wrong types. Raises as client.get."""
    found = list[Json]()
    async for page in pages(client, path, most):
        found += await asyncio.to_thread(shapes.objects, path, page.items)
        if page.last or len(found) >= most:
            return Listed(tuple(found[:most]), page.last and len(found) <= most)
    return Listed(tuple(found), False)


async def pages(client: KubeClient, path: str, most: int, size: int = _PAGE) -> AsyncIterator[Page]:
    """A collection page by page, about until `most` objects have come. Raises as client.get."""
    params, limit, left = dict[str, str](), min(size, most), 2 * (most + size)
    while left > 0:  # a server that gives empty pages gives no endless list
        try:
            answer = await client.get(path, {**params, "limit": str(limit)})
        except UnexpectedAnswer:
            if limit <= SMALLEST_PAGE:
                raise
            limit = max(limit // 5, SMALLEST_PAGE)  # it may have been too large
            continue
        left -= limit
        more = answer["metadata"].get("continue")
        yield Page(answer["items"], str(answer.get("kind", "")).removesuffix("List"), not more)
        if not more:
            return
        params["continue"] = more
