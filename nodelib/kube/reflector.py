"""List and watch one collection, keep it in memory, tell of every change.

Same contract as client-go's Reflector: a list, then a watch from its resourceVersion with
bookmarks; an expired version lists again, and what vanished meanwhile is told as DELETED.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping

from nodelib.backoff import Backoff
from nodelib.kube.client import ApiError, ApiUnreachable, Json, KubeClient

log = logging.getLogger(__name__)

Key = tuple[str, str]
OnChange = Callable[[str, Json, Json | None], None]
_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 10.0
_GROWTH = 1.5  # gentle: at a cluster's start the first answers come within seconds


class Reflector:
    """`on_change(type, object, old)` with type ADDED, MODIFIED or DELETED; it must not block.

    `store` maps (namespace, name) to the newest object; `synced` is set after the first list;
    `last_error` says why nothing comes, "" when all is well.
    """

    def __init__(
        self,
        client: KubeClient,
        path: str,
        *,
        name: str,
        params: Mapping[str, str] | None = None,
        on_change: OnChange | None = None,
    ) -> None:
        self.name = name
        self.store: dict[Key, Json] = {}
        self.synced = asyncio.Event()
        self.last_error = ""
        self._client = client
        self._path = path
        self._params = dict(params or {})
        self._on_change = on_change

    async def run(self) -> None:
        """Until cancelled; failures are logged once per cause and tried again with a growing pause."""
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=_GROWTH, jitter=0.2)
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list()
                self._well()
                async for seen in self._watch(version):
                    version = seen
                    pause.reset()
            except ApiError as error:
                version = ""
                if not error.is_gone:
                    self._failed(str(error))
                    await asyncio.sleep(pause.next())
            except ApiUnreachable as error:
                self._failed(str(error))
                await asyncio.sleep(pause.next())
            else:
                await asyncio.sleep(0.01)

    async def _list(self) -> str:
        answer = await self._client.get(self._path, self._params)
        meta = answer.get("metadata") or {}
        kind = str(answer.get("kind", "")).removesuffix("List")
        fresh: dict[Key, Json] = {}
        for item in answer.get("items") or []:
            item.setdefault("kind", kind)
            item.setdefault("apiVersion", answer.get("apiVersion", ""))
            fresh[key_of(item)] = item
        gone = [old for key, old in self.store.items() if key not in fresh]
        previous, self.store = self.store, fresh
        for old in gone:
            self._tell("DELETED", old, old)
        for key, item in fresh.items():
            before = previous.get(key)
            if before is None:
                self._tell("ADDED", item, None)
            elif _version(before) != _version(item):
                self._tell("MODIFIED", item, before)
            else:
                fresh[key] = before  # its owner may have trimmed it
        self.synced.set()
        return str(meta.get("resourceVersion", ""))

    async def _watch(self, version: str) -> AsyncIterator[str]:
        params = {
            **self._params,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(300, 600)),
        }
        async for event in self._client.stream(self._path, params):
            item = event["object"]
            if event["type"] != "BOOKMARK":
                self._apply(event["type"], item)
            yield _version(item)

    def _apply(self, kind: str, item: Json) -> None:
        key = key_of(item)
        old = self.store.get(key)
        if kind == "DELETED":
            self.store.pop(key, None)
        else:
            self.store[key] = item
            kind = "ADDED" if old is None else "MODIFIED"
        self._tell(kind, item, old)

    def _tell(self, kind: str, item: Json, old: Json | None) -> None:
        if self._on_change is None:
            return
        try:
            self._on_change(kind, item, old)
        except Exception:
            log.exception("%s: the handler of %s %s failed", self.name, kind, key_of(item))

    def _failed(self, message: str) -> None:
        if message != self.last_error:
            log.warning("%s: %s", self.name, message)
        self.last_error = message

    def _well(self) -> None:
        if self.last_error:
            log.info("%s: in touch again", self.name)
        self.last_error = ""


def key_of(item: Json) -> Key:
    """(namespace, name); the namespace is empty for cluster-wide objects."""
    meta = item["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _version(item: Json) -> str:
    return str(item["metadata"].get("resourceVersion", ""))
