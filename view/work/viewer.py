"""One browser: sends it what changed since the last message, and follows the one object that it looks at.

A browser that is slow gets fewer and larger messages: only the newest row of each object waits for it, and only the
newest text of the object that it looks at.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from nodelib.backoff import Backoff
from nodelib.clock import Clock, at_most
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.tasks import cancel_and_wait
from view.model import NODE, SERVICE, Look, Row, Why
from view.plan import requests, texts
from view.plan.life import life
from view.ports import Answers, Feeds, Wire
from view.work.board import Board

log = logging.getLogger(__name__)

_FOLD = 0.2  # seconds in which changes of the object that is looked at are collected
_SECONDS = 20.0  # for one answer
_AGAIN, _LATEST = 0.5, 5.0  # seconds until the node is asked again about a step that goes on


class Viewer:
    """`run()` serves the browser at the other end of `wire` until it leaves; `hear()` takes what it says."""

    def __init__(self, board: Board, answers: Answers, feeds: Feeds, wire: Wire, clock: Clock) -> None:
        self._board, self._answers, self._feeds, self._wire, self._clock = board, answers, feeds, wire, clock
        self._rows: dict[str, Row | None] = {}
        self._state = ""
        self._detail, self._sent_detail = "", ""
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
        self._detail = self._sent_detail = ""
        look = requests.look(text)
        self._following = asyncio.create_task(self._follow(look), name="look") if look is not None else None

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
        if self._detail and self._detail != self._sent_detail:
            self._sent_detail = self._detail
            found.append(self._detail)
        return found

    async def _follow(self, look: Look) -> None:
        """Until cancelled: the newest text of the object, each time it changes."""
        changed = asyncio.Event()
        changed.set()
        end = self._board.follow(look, changed.set)
        try:
            async with self._events(look, changed.set) as events:
                pause = Backoff(_AGAIN, _LATEST)
                while True:
                    if changed.is_set():
                        pause.reset()
                    changed.clear()
                    goes_on = await self._look(look, events)
                    await self._clock.sleep(_FOLD)
                    if goes_on:
                        await at_most(self._clock, pause.next(), changed)
                    else:
                        await changed.wait()
        except Exception:
            log.exception("%s cannot be followed", look)
        finally:
            end()

    @contextlib.asynccontextmanager
    async def _events(self, look: Look, on_change: Callable[[], None]) -> AsyncIterator[Callable[[], Sequence[Json]]]:
        obj = self._board.stores[look.kind].get(look.key)
        if obj is None or look.kind in (NODE, SERVICE):
            yield tuple
            return
        async with self._feeds.about(obj, on_change) as feed:
            yield feed.events

    async def _look(self, look: Look, events: Callable[[], Sequence[Json]]) -> bool:
        """Whether the node is at work on it: its record changes then without any change that a watch tells of."""
        goes_on = False
        obj = self._board.stores[look.kind].get(look.key)
        if obj is None:
            self._detail = texts.gone(look)
        elif look.kind == NODE:
            self._detail = await asyncio.to_thread(texts.node_detail, look, obj)
        elif look.kind == SERVICE:
            lines = await self._service(obj)
            self._detail = await asyncio.to_thread(texts.service_detail, look, obj, lines)
        else:
            known = events()
            answer = await self._why(obj, known)
            steps = () if isinstance(answer, str) else answer.steps
            goes_on = any(one.seconds is None for one in steps)
            shown = life(obj, steps, known)
            self._detail = await asyncio.to_thread(texts.pod_detail, look, obj, answer, shown)
        self._news.set()
        return goes_on

    async def _why(self, pod: Json, events: Sequence[Json]) -> Why | str:
        try:
            return await asyncio.wait_for(self._answers.why(pod, events), _SECONDS)
        except NodewrightError as error:
            return str(error)
        except TimeoutError:
            return f"there was no answer in {_SECONDS:g} s"

    async def _service(self, service: Json) -> Sequence[str]:
        try:
            return await asyncio.wait_for(self._answers.service(service, self._board.stores), _SECONDS)
        except NodewrightError as error:
            return [str(error)]
        except TimeoutError:
            return [f"there was no answer in {_SECONDS:g} s"]
