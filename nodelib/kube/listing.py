"""Lists for commands that are run once: page by page, as far as their fields can be read, and not without end."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from nodelib.json_values import Json
from nodelib.kube import shapes
from nodelib.kube.client import KubeClient

MOST = 20_000  # objects of one list
_PAGE = 500


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects; `whole`: the API server has no others."""

    items: tuple[Json, ...]
    whole: bool = True


async def listed(client: KubeClient, path: str, most: int = MOST) -> Listed:
    """At most `most` objects of a collection, without what nothing here reads of wrong types. Raises as client.get."""
    params, found = {"limit": str(min(_PAGE, most))}, list[Json]()
    for _ in range(2 * most // _PAGE + 2):  # a server that gives empty pages gives no endless list
        answer = await client.get(path, params)
        found += await asyncio.to_thread(shapes.objects, path, answer["items"])
        more = answer["metadata"].get("continue")
        if not more or len(found) >= most:
            return Listed(tuple(found[:most]), not more and len(found) <= most)
        params["continue"] = more
    return Listed(tuple(found), False)
