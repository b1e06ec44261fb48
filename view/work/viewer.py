"""One browser: sends it what changed since the last message, and follows the one object that it looks at.

A browser that is slow gets fewer and larger messages: only the newest row of each object waits for it, and only the
newest text of the object that it looks at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError
from nodelib.json_values import Json, object_or_empty
from nodelib.tasks import cancel_and_wait
from view.model.network import ServiceSaid, Wired
from view.model.nodes import NodeWork
from view.model.objects import CLUSTER_POLICY, NODE, POD, POLICY, SERVICE, Key, Look, PacketLook, Row, WiringLook
from view.model.pods import Why
from view.plan import requests, texts
from view.plan.life import life
from view.plan.node_work import document
from view.ports import Answers, Feeds, Wire
from view.work import costs, packet
from view.work.board import Board

log = logging.getLogger(__name__)

_FOLD = 0.2  # seconds in which changes of the object that is looked at are collected
_SECONDS = 20.0  # for one answer
_AGAIN, _LATEST = 0.5, 5.0  # seconds until the node is asked again about a step that goes on
_NODE_FOLD = 1.0  # seconds in which changes of a node's pods are collected: in a burst there are many
_WIRED = 50  # nodes whose wiring the view of the cluster shows
# Seconds after a change of pods, and without one. Answers may be a second old (cli/commands/view/wiring.py): what is
# asked sooner after a change would not have it.
_WIRING_FOLD, _WIRING = 2.0, 30.0
_SHARE = 4  # times as long as an answer took passes until it is asked for again
_MEASURED = 5.0  # seconds until a node is asked again for what it measures, of which no watch tells

_DETAIL = "detail"
T = TypeVar("T")


class Again(Enum):
    """When the object that is looked at is asked about again: only when it changes, soon, or now and then too."""

    NO = 0
    SOON = 1
    AT_TIMES = 2


class Viewer:
    """`run()` serves the browser at the other end of `wire` until it leaves; `hear()` takes what it says."""

    def __init__(self, board: Board, answers: Answers, feeds: Feeds, wire: Wire, clock: Clock) -> None:
        self._board, self._answers, self._feeds, self._wire, self._clock = board, answers, feeds, wire, clock
        self._rows: dict[str, Row | None] = {}
        self._state = ""
        self._said: dict[str, str] = {}  # by what they are about, the messages that are not sent yet
        self._sent_detail = ""
        self._news = asyncio.Event()
        self._following: asyncio.Task[None] | None = None

    def rows(self, changed: Mapping[str, Row | None]) -> None:
        self._rows.update(changed)
        self._news.set()

    def state(self, text: str) -> None:
        self._state = text
        self._news.set()

    def hear(self, text: str) -> None:
        """What the browser wants to look at from now on."""
        if self._following is not None:
            self._following.cancel()
        self._said.clear()
        self._sent_detail = ""
        look = requests.look(text)
        self._following = asyncio.create_task(self._look_at(look), name="look") if look is not None else None

    async def run(self) -> None:
        """Raises Gone when the browser has left."""
        self._board.join(self)
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                for text in self._pending():
                    await self._wire.send(text)
        finally:
            self._board.leave(self)
            if self._following is not None:
                await cancel_and_wait(self._following)

    def _pending(self) -> list[str]:
        changed, self._rows = self._rows, {}
        state, self._state = self._state, ""
        found = [*texts.rows(changed), *([state] if state else [])]
        said, self._said = self._said, {}
        detail = said.get(_DETAIL, "")
        if detail and detail == self._sent_detail:
            del said[_DETAIL]
        self._sent_detail = detail or self._sent_detail
        return [*found, *said.values()]

    def _tell(self, about: str, text: str) -> None:
        self._said[about] = text
        self._news.set()

    async def _look_at(self, look: Look | PacketLook | WiringLook) -> None:
        """Until cancelled."""
        try:
            if isinstance(look, PacketLook):
                await packet.follow(look.asked, self._answers, self._board.stores, self._tell, self._clock)
            elif isinstance(look, WiringLook):
                await self._follow_wiring()
            else:
                await self._follow(look)
        except Exception:
            log.exception("%s cannot be followed", look)

    async def _follow_wiring(self) -> None:
        """Until cancelled: whose packets are dropped, and how the nodes are wired, anew when their pods change."""
        drops = packet.follow_cluster(self._answers, lambda text: self._tell("drops", text), self._clock)
        beside = asyncio.create_task(drops, name="refused packets")
        try:
            await self._wirings()
        finally:
            await cancel_and_wait(beside)

    async def _wirings(self) -> None:
        changed = asyncio.Event()
        while True:
            changed.clear()
            names = [name for _, name in self._board.stores[NODE]]
            ends = [self._board.follow(Look(NODE, ("", name)), changed.set) for name in names]
            try:
                answers = [self._in_time(self._answers.wired(name, self._board.stores)) for name in names[:_WIRED]]
                found = dict(zip(names, await asyncio.gather(*answers), strict=False))
                self._tell("wiring", await asyncio.to_thread(texts.wiring, found))
                if names:
                    await at_most(self._clock, _WIRING, changed)
                await self._clock.sleep(_WIRING_FOLD)
            finally:
                for end in ends:
                    end()

    async def _follow(self, look: Look) -> None:
        """Until cancelled: the newest text of the object, each time it changes."""
        changed = asyncio.Event()
        changed.set()
        end = self._board.follow(look, changed.set)
        beside = self._beside(look) if look.kind == POD else []
        try:
            async with self._events(look, changed.set) as events:
                pause = Backoff(_AGAIN, _LATEST)
                while True:
                    is_news = changed.is_set()
                    if is_news:
                        pause.reset()
                    changed.clear()
                    began = self._clock.monotonic()
                    again = await self._look(look, events, is_news)
                    took = self._clock.monotonic() - began
                    await self._clock.sleep(_NODE_FOLD if look.kind == NODE else _FOLD)
                    if again is Again.NO:
                        await changed.wait()
                    else:
                        rest = pause.next() if again is Again.SOON else _MEASURED
                        await at_most(self._clock, max(rest, _SHARE * took), changed)
        finally:
            end()
            await cancel_and_wait(*beside)

    def _beside(self, look: Look) -> list[asyncio.Task[None]]:
        """What is told of a pod beside its text."""

        def pod() -> Json | None:
            return self._board.stores[look.kind].get(look.key)

        uses = costs.follow(look, pod, self._answers, lambda text: self._tell("costs", text), self._clock)
        drops = packet.follow_pod(look, self._answers, lambda text: self._tell("refusals", text), self._clock)
        return [asyncio.create_task(uses, name="costs"), asyncio.create_task(drops, name="refused packets")]

    @contextlib.asynccontextmanager
    async def _events(self, look: Look, on_change: Callable[[], None]) -> AsyncIterator[Callable[[], Sequence[Json]]]:
        obj = self._board.stores[look.kind].get(look.key)
        if look.kind == NODE:
            async with self._answers.news_of(look.key[1], on_change):
                yield tuple
            return
        if obj is None or look.kind in (SERVICE, POLICY, CLUSTER_POLICY):
            yield tuple
            return
        async with self._feeds.about(obj, on_change) as feed:
            yield feed.events

    async def _look(self, look: Look, events: Callable[[], Sequence[Json]], is_news: bool) -> Again:
        """`is_news`: it has changed. SOON while the node is at work on it: its record changes then without any
        change that a watch tells of. AT_TIMES while it waits: how often it was tried, and for how long."""
        again = Again.NO
        obj = self._board.stores[look.kind].get(look.key)
        if obj is None:
            text = texts.gone(look)
        elif look.kind == NODE:
            work, wired = await asyncio.gather(
                self._in_time(self._answers.node(look.key[1])),
                self._in_time(self._answers.wired(look.key[1], self._board.stores)),
            )
            goes_on = not isinstance(work, str) and any(step.seconds is None for one in work.pods for step in one.steps)
            again = Again.SOON if goes_on else Again.AT_TIMES
            text = await asyncio.to_thread(_node_text, look, obj, work, wired, self._board.stores[POD])
        elif look.kind in (POLICY, CLUSTER_POLICY):
            enforced = await self._in_time(self._answers.policy(obj, self._board.stores))
            again = Again.NO if isinstance(enforced, str) else Again.AT_TIMES  # its counters
            text = await asyncio.to_thread(texts.policy_detail, look, obj, enforced)
        elif look.kind == SERVICE:
            said = await self._in_time(self._answers.service(obj, self._board.stores))
            said = ServiceSaid((said,)) if isinstance(said, str) else said
            text = await asyncio.to_thread(texts.service_detail, look, obj, said)
        else:
            known = events()
            answer, averages = await asyncio.gather(
                self._in_time(self._answers.why(obj, known, only_node=not is_news)),
                self._in_time(self._answers.averages(str(object_or_empty(obj.get("spec")).get("nodeName") or ""))),
            )
            steps = () if isinstance(answer, str) else answer.steps
            again = _again(obj, answer)
            shown = life(obj, steps, known, {} if isinstance(averages, str) else averages)
            text = await asyncio.to_thread(texts.pod_detail, look, obj, answer, shown)
        self._tell(_DETAIL, text)
        return again

    async def _in_time(self, answer: Awaitable[T]) -> T | str:
        """The answer, or why there is none."""
        try:
            async with asyncio.timeout(_SECONDS):
                return await answer
        except NodewrightError as error:
            return str(error)
        except TimeoutError:
            return f"there was no answer in {_SECONDS:g} s"


def _again(pod: Json, answer: Why | str) -> Again:
    """What no watch tells of a pod, its node alone knows; a pod that is over does not change."""
    if isinstance(answer, str) or not answer.by_node:
        return Again.NO
    if any(one.seconds is None for one in answer.steps):
        return Again.SOON
    over = object_or_empty(pod.get("status")).get("phase") in ("Succeeded", "Failed")
    return Again.NO if answer.is_well or over else Again.AT_TIMES


def _node_text(look: Look, node: Json, work: NodeWork | str, wired: Wired | str, pods: Mapping[Key, Json]) -> str:
    return texts.node_detail(look, node, work if isinstance(work, str) else document(work, pods), wired)
