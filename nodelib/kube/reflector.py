"""Lists and watches one collection, keeps it in memory and reports every change.

Same contract as client-go's Reflector (tools/cache/reflector.go): a list, then a watch from its resourceVersion with
bookmarks. The list comes as the first events of that watch (streaming_list.py), or else in pages. After an expired
version it lists again, and reports objects that are gone as DELETED. An answer that no API server gives (answers.py)
changes nothing: what is known stays, and the collection is listed again after a pause.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping

from nodelib.backoff import Backoff
from nodelib.json_values import Json, object_or_empty
from nodelib.kube.client import SMALLEST_PAGE, KubeClient
from nodelib.kube.errors import ApiError, ApiUnreachable, UnexpectedAnswer
from nodelib.kube.streaming_list import BREATH, MOST_OBJECTS, Events, NotStreamed, StreamingList

log = logging.getLogger(__name__)

Key = tuple[str, str]
OnChange = Callable[[str, Json, Json | None], None]
OnFirst = Callable[[list[Json]], Awaitable[None]]
OnState = Callable[[str], None]
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_PAGE = 500  # objects in one answer: its decoding takes a few milliseconds
_MOST_STALE_PAGES = 20  # of one list that bring no object that the others have not brought
_SHORT_WATCH = 1.0  # seconds; a watch that ends sooner is followed by a pause ("very short watch" in client-go)
_KEPT = ("name", "namespace", "resourceVersion", "uid")  # of the metadata of a trimmed object
_GROWTH = 1.5  # small, because a starting API server answers within seconds


class Reflector:
    """Calls `on_change(type, object, old)` with type ADDED, MODIFIED or DELETED; it must not block.

    `on_first(objects)` gets the first list as a whole instead; if it raises, `on_change` gets each object. `store` maps
    (namespace, name) to the newest object; `synced` is set after the first list; `last_error` says why there are no
    news, "" if all is well. `on_state(last_error)` is called when that changes, and after the first list.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        name: str,
        params: Mapping[str, str] | None = None,
        on_change: OnChange | None = None,
        on_first: OnFirst | None = None,
        on_state: OnState | None = None,
    ) -> None:
        self.name = name
        self.store: dict[Key, Json] = {}
        self.synced = asyncio.Event()
        self.last_error = ""
        self._client = client
        self._path = path
        self._params = dict(params or {})
        self._on_change, self._on_first, self._on_state = on_change, on_first, on_state
        self._listed = ""  # version of the newest list
        self._page = _PAGE
        self._streaming = StreamingList(client, path, self._params)
        self._why_paged = ""

    async def run(self) -> None:
        """Until cancelled. A failure is logged once per cause, and retried after a growing pause."""
        async with contextlib.aclosing(self._streaming):
            await self._follow()

    async def _follow(self) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=_GROWTH, jitter=0.2)
        loop = asyncio.get_running_loop()
        version, expired = "", False
        while True:
            started = loop.time()
            try:
                if not version:
                    version = await self._list()
                    self._well(listed=True)
                started = loop.time()
                async for seen in self._watch(self._streaming.taken() or self._watch_from(version)):
                    version, expired = seen, False
                    if loop.time() - started > _SHORT_WATCH:
                        pause.reset()
            except ApiError as error:
                version = ""
                if not error.is_gone:
                    self._failed(str(error))
                # An expired version is listed anew at once, but not again and again.
                if expired or not error.is_gone:
                    await asyncio.sleep(pause.next(error.retry_after))
                expired = error.is_gone
            except ApiUnreachable as error:
                if isinstance(error, UnexpectedAnswer):
                    version, self._page = "", max(self._page // 5, SMALLEST_PAGE)
                self._failed(str(error))
                await asyncio.sleep(pause.next(error.retry_after))
            else:
                if loop.time() - started > _SHORT_WATCH:
                    pause.reset()
                    await asyncio.sleep(0.01)
                else:
                    await asyncio.sleep(pause.next())

    async def _list(self) -> str:
        """A few objects at a time, because a large collection must not block the event loop. The version of the list.

        Leaves the watch open that the list came from.
        """
        if self._streaming.is_wanted:
            newest = self._newest()
            try:
                version = await self._streaming.open(newest.take)
            except NotStreamed as error:
                self._listed_in_pages(str(error))
            else:
                await self._take_over(newest)
                return version
        newest = self._newest()
        async for item in self._pages():
            newest.take("ADDED", item)
        await self._take_over(newest)
        return self._listed

    def _newest(self) -> _Newest:
        """Where the objects of a list go.

        Into an empty store they go at once, so that the handler can trim each before more arrive. Otherwise, and with
        `on_first`, they wait until the list is complete: half of one must not end anything.
        """
        whole = self._on_first is not None and not self.synced.is_set()
        return _Newest(self.store, None if whole or self.store else self._apply)

    async def _take_over(self, newest: _Newest) -> None:
        """The list is complete."""
        previous = self.store
        if not newest.is_applied:
            self.store = newest.objects
            if self._on_first is not None and not self.synced.is_set():
                await self._report_first(self._on_first)
            else:
                for key, old in previous.items():
                    if key not in newest.objects:
                        self._report("DELETED", old, old)
                await self._report_differences(previous, newest.objects)
        self.synced.set()

    def _listed_in_pages(self, why: str) -> None:
        if why != self._why_paged:
            log.info("%s: listed in pages: %s", self.name, why)
        self._why_paged = why

    async def _pages(self) -> AsyncIterator[Json]:
        """Raises UnexpectedAnswer for a list that has no end."""
        params = {**self._params, "limit": str(self._page)}
        seen: set[Key] = set()
        stale = 0
        while True:
            answer = await self._client.get(self._path, params)
            meta = answer["metadata"]
            self._listed = str(meta["resourceVersion"])
            kind = str(answer["kind"]).removesuffix("List")
            before = len(seen)
            for number, item in enumerate(answer["items"], 1):
                item.setdefault("kind", kind)
                item.setdefault("apiVersion", answer["apiVersion"])
                seen.add(key_of(item))
                yield item
                if number % BREATH == 0:
                    await asyncio.sleep(0)
            if not meta.get("continue"):
                self._page = _PAGE
                return
            stale += len(seen) == before
            if stale > _MOST_STALE_PAGES or len(seen) > MOST_OBJECTS:
                raise UnexpectedAnswer(
                    f"the list has no end: {len(seen)} objects, and there are more pages",
                    obj=f"API server {self._client.access.server}",
                    step=f"list {self._path}",
                    action="Look for a proxy in front of the API server that drops the parameter `continue`.",
                )
            params["continue"] = meta["continue"]

    async def _report_differences(self, previous: dict[Key, Json], fresh: dict[Key, Json]) -> None:
        for number, (key, item) in enumerate(list(fresh.items()), 1):
            before = previous.get(key)
            if before is None:
                self._report("ADDED", item, None)
            elif before is not item:
                self._report("MODIFIED", item, before)
            if number % BREATH == 0:
                await asyncio.sleep(0)

    def _watch_from(self, version: str) -> Events:
        params = {
            **self._params,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(300, 600)),
        }
        return self._client.stream(self._path, params, on_open=self._well)

    async def _watch(self, events: Events) -> AsyncIterator[str]:
        """The version after each event.

        Thousands are there at once when the loop was busy, or the connection slow: others have their turns meanwhile.
        """
        number = 0
        async with contextlib.aclosing(events):
            async for event in events:
                item = event["object"]
                if event["type"] != "BOOKMARK":
                    self._apply(event["type"], item)
                yield _version(item)
                number += 1
                if number % BREATH == 0:
                    await asyncio.sleep(0)

    def _apply(self, kind: str, item: Json) -> None:
        key = key_of(item)
        old = self.store.get(key)
        if kind == "DELETED":
            self.store.pop(key, None)
        else:
            self.store[key] = item
            kind = "ADDED" if old is None else "MODIFIED"
        self._report(kind, item, old)

    async def _report_first(self, on_first: OnFirst) -> None:
        try:
            await on_first(list(self.store.values()))
        except Exception:
            log.exception("%s: the handler of the first list failed; its objects are reported one by one", self.name)
            for item in list(self.store.values()):
                self._report("ADDED", item, None)

    def _report(self, kind: str, item: Json, old: Json | None) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(kind, item, old)
        except Exception:
            log.exception("%s: the handler of %s %s failed", self.name, kind, key_of(item))

    def _failed(self, message: str) -> None:
        if message != self.last_error:
            log.warning("%s: %s", self.name, message)
            self._tell(message)
        self.last_error = message

    def _well(self, *, listed: bool = False) -> None:
        if self.last_error:
            log.info("%s: in touch again", self.name)
        if self.last_error or listed:
            self._tell("")
        self.last_error = ""

    def _tell(self, message: str) -> None:
        if self._on_state is not None:
            self._on_state(message)


class _Newest:
    """Objects of a list that is not complete yet. `apply`: what takes each change at once instead."""

    def __init__(self, known: Mapping[Key, Json], apply: Callable[[str, Json], None] | None) -> None:
        self.objects: dict[Key, Json] = {}
        self.is_applied = apply is not None
        self._known, self._apply = known, apply

    def take(self, kind: str, item: Json) -> None:
        if self._apply is not None:
            self._apply(kind, item)
            return
        key = key_of(item)
        known = self._known.get(key)
        if kind == "DELETED":
            self.objects.pop(key, None)
        elif known is not None and _version(known) == _version(item):
            self.objects[key] = known  # the handler may have trimmed it
        else:
            self.objects[key] = item


def then_trimmed(handle: Callable[[str, Json], None], labels: Iterable[str] = ()) -> OnChange:
    """Of each object the store keeps only what the reflector needs, once `handle` has seen it: there may be 100,000.

    `labels` are kept, too.
    """

    def on_change(kind: str, item: Json, _: Json | None) -> None:
        handle(kind, item)
        meta = object_or_empty(item.get("metadata"))
        given = object_or_empty(meta.get("labels"))
        slim = {key: meta[key] for key in _KEPT if key in meta}
        if kept := {name: given[name] for name in labels if name in given}:
            slim["labels"] = kept
        item.clear()
        item["metadata"] = slim

    return on_change


def key_of(item: Json) -> Key:
    """(namespace, name); the namespace is empty for cluster-wide objects."""
    meta = item["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _version(item: Json) -> str:
    return str(item["metadata"].get("resourceVersion", ""))
