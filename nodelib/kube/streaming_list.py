"""The state of a collection from the first events of a watch (KEP-3157), which spares the API server whole lists.

Each object comes as ADDED, then what changes meanwhile, then a bookmark that says: this is all, of this version. The
watch goes on from there. Upstream: watchList in client-go's tools/cache/reflector.go, gate WatchListClient. As there, a
collection that does not come so is listed in pages. Otherwise than there, the initial events are bounded in number,
size and time, and a server that refuses them or does not end them is not asked again for a while.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping

from nodelib.json_values import Json, object_or_empty
from nodelib.kube.answers import Allowance
from nodelib.kube.client import KubeClient
from nodelib.kube.errors import ApiError, ApiUnreachable, NotServed, UnexpectedAnswer

Take = Callable[[str, Json], None]
Events = AsyncGenerator[Json, None]

END = "k8s.io/initial-events-end"  # metav1.InitialEventsAnnotationKey
BREATH = 64  # objects after which the event loop may serve others
MOST_OBJECTS = 1_000_000  # of one collection
_MOST_BYTES = 256 << 20  # of initial events; a larger collection is listed in pages
_SILENCE = 30.0  # seconds between two events
_LONGEST = 300.0  # seconds for all of them
_REFUSED_FOR = 600.0  # seconds
_REFUSALS = frozenset((400, 405, 422))  # the API server's gate WatchList is off, or it is older than that


class NotStreamed(Exception):
    """The collection has to be listed in pages. The message says why."""


class StreamingList:
    """open(), then the watch goes on in taken(); aclose() in any case."""

    def __init__(self, client: KubeClient, path: str, params: Mapping[str, str]) -> None:
        self._events: Events | None = None
        self._client, self._path, self._params = client, path, dict(params)
        self._refused_until = 0.0

    @property
    def is_wanted(self) -> bool:
        """Whether it is worth while to ask: the gate is on, and the server has not refused it of late."""
        return self._client.streaming_lists and asyncio.get_running_loop().time() >= self._refused_until

    async def open(self, take: Take) -> str:
        """Give the initial events to `take`, which must not block; the version of the state that they make.

        Raises NotStreamed, and ApiError or ApiUnreachable when a list would get no answer either. What `take` was given
        until then may be any part of the state.
        """
        await self.aclose()
        try:
            return await self._open(take)
        except BaseException:
            await self.aclose()  # what it would still send is not the watch
            raise

    async def _open(self, take: Take) -> str:
        opened, allowance = asyncio.Event(), Allowance(_MOST_BYTES)
        self._events = self._client.stream(self._path, self._query(), on_open=opened.set, allowance=allowance)
        try:
            version = await self._initial(self._events, take)
        except TimeoutError as error:
            if opened.is_set():
                raise self._not_streamed("the initial events did not end in time", lasting=True) from error
            raise self._silent() from error
        except ApiError as error:
            if error.code == 429 or isinstance(error, NotServed):
                raise
            raise self._not_streamed(str(error), lasting=error.code in _REFUSALS) from error
        except ApiUnreachable as error:
            if not opened.is_set() and not isinstance(error, UnexpectedAnswer):
                raise
            raise self._not_streamed(str(error), lasting=allowance.is_spent) from error
        allowance.left = None
        return version

    def taken(self) -> Events | None:
        """The watch behind the initial events, once: the caller closes it."""
        events, self._events = self._events, None
        return events

    async def aclose(self) -> None:
        if (events := self.taken()) is not None:
            await events.aclose()

    def _query(self) -> dict[str, str]:
        """Without a version: the newest state, as of a read from etcd."""
        return {
            **self._params,
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(random.randint(300, 600)),
        }

    async def _initial(self, events: Events, take: Take) -> str:
        """Raises TimeoutError."""
        loop = asyncio.get_running_loop()
        end, number = loop.time() + _LONGEST, 0
        async with asyncio.timeout(_SILENCE) as limit:
            async for event in events:
                item = event["object"]
                if event["type"] != "BOOKMARK":
                    take(event["type"], item)
                elif _ends(item):
                    return str(item["metadata"]["resourceVersion"])
                number += 1
                if number > MOST_OBJECTS:
                    raise self._not_streamed(f"there are more than {MOST_OBJECTS} initial events", lasting=True)
                if number % BREATH == 0:
                    await asyncio.sleep(0)
                limit.reschedule(min(loop.time() + _SILENCE, end))
        raise self._not_streamed("the initial events ended too soon", lasting=False)

    def _not_streamed(self, why: str, *, lasting: bool) -> NotStreamed:
        if lasting:
            self._refused_until = asyncio.get_running_loop().time() + _REFUSED_FOR
        return NotStreamed(why)

    def _silent(self) -> ApiUnreachable:
        return ApiUnreachable(
            "no answer: it took too long",
            obj=f"API server {self._client.access.server}",
            step=f"WATCH {self._path}",
            action="Check that the API server is running and that this node can reach it.",
        )


def _ends(bookmark: Json) -> bool:
    return bool(object_or_empty(bookmark["metadata"].get("annotations")).get(END) == "true")
