"""Tells watchers what becomes of the pods. Each watcher has its own queue, and is dropped when it does not read it.

A pod is ADDED once for each watcher, and DELETED once, when it has released everything or its object is gone; after
that the watcher hears no more of it (upstream can send a second ADDED to one that begins before the first status).

Large pods are encoded in a thread, one at a time and with rests: of what changes meanwhile only the newest is sent.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from agent.pods_api.model import Change, ServedPod
from agent.pods_api.plan.served import is_large, only_name, served
from nodelib.errors import NodewrightError
from nodelib.json_values import Json
from nodelib.loop_share import LoopShare
from nodelib.plugin_apis.errors import Refused
from nodelib.threads import alone

log = logging.getLogger(__name__)

Event = tuple[Change, bytes]

_MOST_WATCHERS = 64
_MOST_EVENTS = 100  # that wait for one watcher, as upstream
_MOST_BYTES = 16 * 1024 * 1024  # of them
_SHARE = 0.2  # of the time, for encoding large pods


@dataclass(slots=True, eq=False)
class Watcher:
    """`known`: the pods as it knows them, by UID."""

    known: dict[str, ServedPod] = field(default_factory=dict)
    waiting: deque[Event] = field(default_factory=deque)
    size: int = 0
    dropped: bool = False
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def put(self, event: Event) -> bool:
        """False: it has not read for too long."""
        self.waiting.append(event)
        self.size += len(event[1])
        self.dropped = len(self.waiting) > _MOST_EVENTS or self.size > _MOST_BYTES
        self.news.set()
        return not self.dropped

    async def next(self) -> Event:
        """Wait for the next event. Raises Refused once it is dropped."""
        while not self.waiting and not self.dropped:
            self.news.clear()
            await self.news.wait()
        if self.dropped:
            self.waiting.clear()
            raise Refused("RESOURCE_EXHAUSTED", "watch client channel closed")
        event = self.waiting.popleft()
        self.size -= len(event[1])
        return event


class PodFeed:
    """run() is long-lived. `encode` turns a Pod into bytes, or raises Invalid; `on_drop` is called for each event that
    is not sent.
    """

    def __init__(self, encode: Callable[[Json], bytes], on_drop: Callable[[], None] = lambda: None) -> None:
        self._encode, self._on_drop = encode, on_drop
        self._watchers: set[Watcher] = set()
        self._last: dict[str, ServedPod] = {}  # as it was sent last, or will be, by UID
        self._large: dict[str, ServedPod] = {}  # those to be encoded, by UID
        self._encoding = ""  # UID of the one that is; "" also if it has gone meanwhile
        self._more = asyncio.Event()

    def add(self, pods: Iterable[ServedPod]) -> Watcher:
        """A watcher that is told of `pods` by the caller, and by next() of all that changes. Raises Refused."""
        if len(self._watchers) >= _MOST_WATCHERS:
            raise Refused("RESOURCE_EXHAUSTED", f"there are {_MOST_WATCHERS} watches of pods already")
        watcher = Watcher({one.pod.uid: one for one in pods})
        self._watchers.add(watcher)
        return watcher

    def remove(self, watcher: Watcher) -> None:
        """It has gone; idempotent."""
        self._watchers.discard(watcher)
        if not self._watchers:
            self._last.clear()
            self._large.clear()

    async def run(self) -> None:
        """Until cancelled: tell of large pods."""
        share, loop = LoopShare(_SHARE, 0.0), asyncio.get_running_loop()
        while True:
            while self._large:
                self._encoding = next(iter(self._large))
                one, began = self._large.pop(self._encoding), loop.time()
                watchers = tuple(self._watchers)  # who comes later knows what the pod is like by then
                data = await alone(self._encoded, served(one))
                share.charge(loop.time() - began)
                if self._encoding:
                    self._tell_each((each for each in watchers if each in self._watchers), one, data)
                self._encoding = ""
                await share.rest()
            self._more.clear()
            await self._more.wait()

    def changed(self, one: ServedPod) -> None:
        """The pod or its status may have changed. Never blocks, never raises."""
        if not self._watchers:
            return
        uid = one.pod.uid
        if one.over:
            self.gone(uid)
            return
        last = self._last.get(uid)
        if last is not None and last.pod.raw is one.pod.raw and last.status == one.status:
            return
        self._last[uid] = one
        if uid in self._large or uid == self._encoding or is_large(one.pod):
            self._large[uid] = one
            self._more.set()
        else:
            self._tell_each(tuple(self._watchers), one, self._encoded(served(one)))

    def gone(self, uid: str) -> None:
        """Nothing of the pod is left; idempotent. Never blocks, never raises."""
        self._last.pop(uid, None)
        self._large.pop(uid, None)
        self._encoding = "" if self._encoding == uid else self._encoding
        data: bytes | None = None
        for watcher in tuple(self._watchers):
            known = watcher.known.pop(uid, None)
            if known is not None:
                data = data if data is not None else self._encoded(only_name(known))
                self._tell(watcher, Change.DELETED, data or b"")

    def _tell_each(self, watchers: Iterable[Watcher], one: ServedPod, data: bytes | None) -> None:
        for watcher in watchers if data is not None else ():
            change = Change.MODIFIED if one.pod.uid in watcher.known else Change.ADDED
            watcher.known[one.pod.uid] = one
            self._tell(watcher, change, data or b"")

    def _tell(self, watcher: Watcher, change: Change, data: bytes) -> None:
        if not watcher.put((change, data)):
            log.warning("pods API: a watcher does not read, it is dropped")
            self._on_drop()
            self.remove(watcher)

    def _encoded(self, pod: Json) -> bytes | None:
        try:
            return self._encode(pod)
        except NodewrightError as error:
            log.warning("pods API: an event is not sent: %s", error)
            self._on_drop()
            return None
