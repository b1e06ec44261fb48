"""ConfigMaps, Secrets and other objects that pods of this node refer to, with one watch for each object.

The Node authorizer allows list and watch of single objects only (fieldSelector metadata.name=…), and only of those that
pods of this node refer to. A watch is kept as long as a pod uses the object. An immutable object is read once and not
watched. Upstream: pkg/kubelet/util/manager/watch_based_manager.go, where all watches share a connection.

A pod may name thousands of objects, which need not exist: what finds no place for a watch is looked at now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from agent.volumes.plan import watches as plan
from agent.volumes.plan.watches import Step
from agent.volumes.work.held_objects import HeldObjects
from agent.volumes.work.watch_places import WatchPlaces
from nodelib.backoff import Backoff
from nodelib.clock import Clock
from nodelib.errors import NodewrightError, Temporary
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.errors import ApiError, UnexpectedAnswer
from nodelib.tasks import Work, cancel_and_wait

log = logging.getLogger(__name__)

_GET_TIMEOUT = 3.0  # seconds that get() waits for a first answer
_FIRST_PAUSE = 0.004  # the authorizer may learn of a pod a few milliseconds after this node does
_PAUSE_GROWTH = 1.6
_LONGEST_PAUSE = 10.0
_SHORT_WATCH = 1.0  # seconds; a watch that ends sooner is followed by a pause


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """`api`: "api/v1" or "apis/GROUP/VERSION"; `kind`: the plural; namespace "" for cluster-wide ones."""

    kind: str
    namespace: str
    name: str
    api: str = "api/v1"

    @property
    def collection(self) -> str:
        where = f"namespaces/{self.namespace}/" if self.namespace else ""
        return f"/{self.api}/{where}{self.kind}"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ")


@dataclass(slots=True)
class _Entry:
    """What is known of one object.

    `version`: its resourceVersion; `listed`: the version to watch from; `placed`: it has a place for its
    watch; `get_failed`: a get() gave up waiting, so its caller must be notified of the first answer; `refused`: it is
    there, and too much to be kept.
    """

    users: set[str] = field(default_factory=set)
    current: Json | None = None
    version: str = ""
    listed: str = ""
    placed: bool = False
    watching: bool = False
    known: asyncio.Event = field(default_factory=asyncio.Event)
    failure: NodewrightError | None = None
    get_failed: bool = False
    refused: bool = False
    task: asyncio.Task[None] | None = None


class WatchedObjects:
    """`notify(uid)` is called for every user of an object that changed, appeared or vanished."""

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        notify: Callable[[str], None],
        places: WatchPlaces | None = None,
        held: HeldObjects | None = None,
    ) -> None:
        self._client = client
        self._clock = clock
        self._notify = notify
        self._places = places or WatchPlaces()
        self._held = held or HeldObjects()
        self._entries: dict[ObjectKey, _Entry] = {}

    def tasks(self) -> list[tuple[str, Work]]:
        """None: each watch has its own task."""
        return []

    async def get(self, user: str, key: ObjectKey) -> Json | None:
        """The object as last seen, None when it does not exist. It stays watched until drop_user() or keep_only().

        Raises Temporary when the API server gives no answer or refuses.
        """
        entry = self._entry(key)
        if entry.refused or (user not in entry.users and entry.known.is_set() and not entry.watching):
            # It is not watched just now: a new pod must not start from what an earlier one read. Or there may be room.
            with contextlib.suppress(ApiError, Temporary):
                await self._read(key, entry)
        entry.users.add(user)
        if not entry.known.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GET_TIMEOUT):
                    await entry.known.wait()
        if not entry.known.is_set():
            entry.get_failed = True
            raise no_answer(key, entry.failure)
        if entry.refused:
            raise self._held.refusal(key, key.namespace)
        return entry.current

    def keep_only(self, user: str, keys: set[ObjectKey]) -> None:
        """`user` no longer needs any other object."""
        for key, entry in list(self._entries.items()):
            if user in entry.users and key not in keys:
                self._remove_user(user, key, entry)

    def drop_user(self, user: str) -> None:
        """`user` needs no object any more."""
        self.keep_only(user, set())

    async def close(self) -> None:
        tasks = [entry.task for entry in self._entries.values() if entry.task is not None]
        self._entries.clear()
        await cancel_and_wait(*tasks)

    def _entry(self, key: ObjectKey) -> _Entry:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry()
            entry.task = asyncio.create_task(self._guard(key, entry), name=f"watch {key}")
        return entry

    def _remove_user(self, user: str, key: ObjectKey, entry: _Entry) -> None:
        entry.users.discard(user)
        if not entry.users:
            asyncio.get_running_loop().call_later(plan.LINGER, self._remove_unused, key, entry)

    def _remove_unused(self, key: ObjectKey, entry: _Entry) -> None:
        """Stop the watch, unless a pod uses the object again by now."""
        if not entry.users and self._entries.get(key) is entry:
            del self._entries[key]
            self._held.drop(key, key.namespace)
            if entry.task is not None:
                entry.task.cancel()

    async def _guard(self, key: ObjectKey, entry: _Entry) -> None:
        while True:
            try:
                await self._follow(key, entry)
                return
            except Exception:
                log.exception("the watch of %s failed and is started again", key)
            finally:
                if entry.placed:
                    entry.placed = False
                    self._places.leave(key.namespace)
            await self._clock.sleep(_LONGEST_PAUSE)

    async def _follow(self, key: ObjectKey, entry: _Entry) -> None:
        pause = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, growth=_PAUSE_GROWTH)
        expired = False
        while True:
            try:
                match self._next_step(key, entry):
                    case Step.READ:
                        await self._read(key, entry)
                        if plan.waits_before_watch(entry.current):
                            await self._clock.sleep(plan.WATCH_DELAY)
                    case Step.LOOK:
                        await self._look_later(key, entry)
                    case Step.LIST:
                        await self._list(key, entry)
                    case Step.STOP:
                        return
                    case Step.WATCH:
                        entry.watching, started = True, self._clock.monotonic()
                        async for seen in self._watch(key, entry, entry.listed):
                            entry.listed, expired = seen, False
                            pause.reset()
                        if self._clock.monotonic() - started < _SHORT_WATCH:
                            await self._clock.sleep(pause.next())
            except ApiError as error:
                entry.watching, entry.listed = False, ""
                # An expired version is listed anew at once, but not again and again.
                if expired or not error.is_gone:
                    await self._failed(key, entry, error, pause)
                expired = error.is_gone
            except Temporary as error:
                entry.watching = False
                if isinstance(error, UnexpectedAnswer):
                    entry.listed = ""
                await self._failed(key, entry, error, pause)

    def _next_step(self, key: ObjectKey, entry: _Entry) -> Step:
        known = entry.known.is_set()
        entry.placed = entry.placed or (known and self._places.take(key.namespace))
        return plan.next_step(known=known, placed=entry.placed, listed=entry.listed, current=entry.current)

    async def _look_later(self, key: ObjectKey, entry: _Entry) -> None:
        """Read it after a pause: there is no place for its watch yet."""
        waiting = self._places.waiting
        waiting[key.namespace] += 1
        try:
            await self._clock.sleep(plan.pause_before_look(waiting[key.namespace], random.random()))
        finally:
            waiting[key.namespace] -= 1
            if not waiting[key.namespace]:
                del waiting[key.namespace]
        await self._read(key, entry)

    async def _read(self, key: ObjectKey, entry: _Entry) -> None:
        """A get is answered at once; a list may wait 100 ms for the server's cache to catch up (KEP-2340)."""
        try:
            found = await self._client.get(f"{key.collection}/{key.name}")
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._update(key, entry, None)
            return
        self._update(key, entry, found)

    async def _list(self, key: ObjectKey, entry: _Entry) -> None:
        """Find the version to watch from, and what has changed since the read."""
        answer = await self._client.get(key.collection, {"fieldSelector": f"metadata.name={key.name}"})
        items = answer["items"]
        self._update(key, entry, items[0] if items else None)
        entry.listed = str(answer["metadata"]["resourceVersion"])

    async def _watch(self, key: ObjectKey, entry: _Entry, version: str) -> AsyncIterator[str]:
        params = {
            "fieldSelector": f"metadata.name={key.name}",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "570",
        }
        async for event in self._client.stream(key.collection, params):
            item = event["object"]
            if event["type"] == "DELETED":
                self._update(key, entry, None)
            elif event["type"] != "BOOKMARK":
                self._update(key, entry, item)
            yield str(item["metadata"].get("resourceVersion", ""))

    def _update(self, key: ObjectKey, entry: _Entry, item: Json | None) -> None:
        version = str(item["metadata"].get("resourceVersion", "")) if item else ""
        changed = version != entry.version
        notify = plan.must_notify(changed=changed, known_before=entry.known.is_set(), get_failed=entry.get_failed)
        entry.refused = self._entries.get(key) is entry and not self._held.fits(key, key.namespace, item)
        entry.current = None if entry.refused else item
        entry.version, entry.failure, entry.get_failed = version, None, False
        entry.known.set()
        if notify:
            for user in sorted(entry.users):
                self._notify(user)

    async def _failed(self, key: ObjectKey, entry: _Entry, error: NodewrightError, pause: Backoff) -> None:
        if pause.current > 0.1 and entry.failure is None:
            log.info("%s: %s", key, error)
            entry.failure = error
        if not entry.users:
            self._remove_unused(key, entry)
        await self._clock.sleep(pause.next(error.retry_after))


def no_answer(key: ObjectKey, failure: NodewrightError | None) -> Temporary:
    """The error of a get() that has nothing to give."""
    return Temporary(
        str(failure) if failure else "no answer from the API server yet",
        obj=str(key),
        step="read",
        action="The agent tries again as soon as the API server answers.",
        retry_after=1,
    )
