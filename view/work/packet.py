"""The view of packets, for one browser: a walk whose rules are read again and again, and packets as they are refused.

Neither rules nor counters have a watch that one could afford, so they are read while somebody looks, and never more
than a fifth of the time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from nodelib.clock import Clock
from nodelib.errors import NodewrightError
from nodelib.tasks import cancel_and_wait
from view.model.network import Refused, Traced
from view.model.objects import Look, Question, Stores
from view.plan import texts
from view.ports import Answers

_REST = 2.0  # seconds between two readings, at least
_SHARE = 4  # times as long as the last one took
_SECONDS = 60.0  # for one
_FOLD = 0.2
_CLUSTER_FOLD = 1.0  # seconds; that packets are dropped is listed for a minute
_MOST = 100  # flows

Tell = Callable[[str, str], None]  # what it is about, and the message


async def follow(asked: Question | None, answers: Answers, stores: Stores, tell: Tell, clock: Clock) -> None:
    """Until cancelled."""
    refusals = _Refusals()

    def every() -> None:
        tell("refused", texts.refused(refusals.flows.values(), refusals.problems))

    tasks = [
        asyncio.create_task(answers.refused(refusals), name="refused packets"),
        asyncio.create_task(_tell(refusals, every, clock), name="tell of refused packets"),
    ]
    try:
        if asked is None:
            await asyncio.Event().wait()
        else:
            await _walk(asked, answers, stores, tell, clock)
    finally:
        await cancel_and_wait(*tasks)


async def follow_pod(look: Look, answers: Answers, tell: Callable[[str], None], clock: Clock) -> None:
    """Until cancelled: the refused packets from and to this pod."""
    refusals = _Refusals("/".join(look.key))
    source = asyncio.create_task(answers.refused(refusals), name="refused packets")
    try:
        await _tell(refusals, lambda: tell(texts.refused_of(look, refusals.flows.values())), clock)
    finally:
        await cancel_and_wait(source)


async def follow_cluster(answers: Answers, tell: Callable[[str], None], clock: Clock) -> None:
    """Until cancelled: the pods whose packets are dropped."""
    refusals = _Refusals()
    source = asyncio.create_task(answers.refused(refusals), name="refused packets")
    try:
        await _tell(refusals, lambda: tell(texts.drops(refusals.flows.values())), clock, _CLUSTER_FOLD)
    finally:
        await cancel_and_wait(source)


async def _walk(asked: Question, answers: Answers, stores: Stores, tell: Tell, clock: Clock) -> None:
    while True:
        began = clock.monotonic()
        tell("walk", texts.walk(asked, await _traced(asked, answers, stores)))
        await clock.sleep(max(_REST, _SHARE * (clock.monotonic() - began)))


async def _traced(asked: Question, answers: Answers, stores: Stores) -> Traced | str:
    try:
        async with asyncio.timeout(_SECONDS):
            return await answers.trace(asked, stores)
    except NodewrightError as error:
        return str(error)
    except TimeoutError:
        return f"There was no answer in {_SECONDS:g} s."


async def _tell(refusals: _Refusals, tell: Callable[[], None], clock: Clock, fold: float = _FOLD) -> None:
    while True:
        tell()
        await refusals.news.wait()
        await clock.sleep(fold)
        refusals.news.clear()


class _Refusals:
    """The newest of each flow; the oldest flows are forgotten. `of`: the pod from or to which they are, "" for all."""

    def __init__(self, of: str = "") -> None:
        self._of = of
        self.flows: dict[tuple[str, ...], Refused] = {}
        self.problems: dict[str, str] = {}
        self.news = asyncio.Event()

    def take(self, found: Sequence[Refused]) -> None:
        mine = [one for one in found if not self._of or self._of in (one.source, one.to)]
        for one in mine:
            key = (one.node, one.direction, one.source, one.to, one.port)
            self.flows.pop(key, None)
            self.flows[key] = one
        for old in list(self.flows)[: max(0, len(self.flows) - _MOST)]:
            del self.flows[old]
        if mine:
            self.news.set()

    def problem(self, node: str, text: str) -> None:
        self.problems.pop(node, None)
        if text:
            self.problems[node] = text
        self.news.set()
