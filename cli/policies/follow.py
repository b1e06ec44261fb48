"""Follows the packets that one node refuses: its policy daemon answers when there is a next one."""

from __future__ import annotations

import asyncio
from typing import Protocol

from cli.policies import sources
from nodelib.json_values import Json
from nodelib.text import one_line
from policy.drops.plan.document import ReportedDrop, reported_drops

_WAIT = 12.0  # seconds that a daemon may take to tell of the next drop; it answers earlier
_PAUSE = 1.0  # seconds before a daemon that did not answer is asked again
_LINE = 4000  # bytes


class Taker(Protocol):
    """Gets what is refused. `problem`: why a node tells of nothing, "" when it does again."""

    def take(self, node: str, found: tuple[ReportedDrop, ...]) -> None: ...

    def problem(self, node: str, text: str) -> None: ...


async def follow_node(node: str, path: str, taker: Taker) -> None:
    """Until cancelled. A daemon that was started again counts from the beginning."""
    after, since, said = 0, None, ""
    while True:
        answer, why = await sources.drops(path, after, wait=_WAIT)
        now = problem_of(answer, why)
        if now != said:
            said = now
            taker.problem(node, now)
        if answer is None or (answer.get("since") != since and since is not None):
            after, since = 0, None
            await asyncio.sleep(_PAUSE)
            continue
        taker.take(node, reported_drops(answer))
        after, since = answer["number"], answer.get("since")


def problem_of(answer: Json | None, why: str) -> str:
    """Why the node tells of nothing, "" if it does."""
    if answer is None:
        return why
    said = answer.get("problem")
    return one_line(said, _LINE) if isinstance(said, str) else ""
