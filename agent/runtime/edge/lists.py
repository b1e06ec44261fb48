"""Lists of the runtime that one message has no room for: asked for in parts.

A message has 16 MiB, for containerd as for its clients. What the runtime tells of a container is up to 12 KB, most of
it written by whoever made the pod: a dozen pods fill a list, and a node that cannot list its pods is lost to all
others. Upstream has only the whole list.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from agent.common.model.errors import CriError
from nodelib.json_values import Json

_T = TypeVar("_T")
Ask = Callable[[Json], Awaitable[list[_T]]]
Parts = Callable[[], Awaitable[Iterable[Json]]]  # filters


# Both in the order in which something goes through them: none is missed that changes between two lists. What containerd
# does not know when it starts becomes UNKNOWN, and from there only EXITED (handleContainerExit of its internal/cri).
async def sandbox_states() -> Iterable[Json]:
    return [{"state": {"state": f"SANDBOX_{name}"}} for name in ("READY", "NOTREADY")]


async def container_states() -> Iterable[Json]:
    return [{"state": {"state": f"CONTAINER_{name}"}} for name in ("CREATED", "RUNNING", "UNKNOWN", "EXITED")]


async def whole(ask: Ask[_T], chosen: Json, identity: Callable[[_T], str], *cuts: Parts) -> list[_T]:
    """Everything that ask() finds with the filter `chosen`, each item as it was seen last. ask() reads the message:
    all parts together may be ten times as large as one.

    Where that is too much for a message, each part of the first cut is asked for by itself, and where a part is too
    much, those of the next cut in it. Raises CriError, also when the last cut's parts are too large.
    """
    try:
        return await ask(chosen)
    except CriError as error:
        if error.code != "RESOURCE_EXHAUSTED" or not cuts:
            raise
    found: dict[str, _T] = {}
    for part in await cuts[0]():
        for item in await whole(ask, chosen | part, identity, *cuts[1:]):
            found[identity(item)] = item
    return list(found.values())
