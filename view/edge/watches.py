"""The watches that the page lives on: its collections, and the Events of what somebody looks at."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from nodelib.json_values import Json
from nodelib.kube import shapes
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Reflector, key_of
from nodelib.tasks import Supervisor, cancel_and_wait
from view.model.objects import Key

OnChange = Callable[[str, Key, Json | None], None]
OnState = Callable[[str, str, bool], None]
_EVENTS = "/api/v1/namespaces/{}/events"
_MOST_EVENTS = 200  # of one object


def watch(
    client: KubeClient, paths: Mapping[str, str], on_change: OnChange, on_state: OnState, tasks: Supervisor
) -> None:
    """Start a watch of each collection; `on_change(kind, key, object)` gets the objects."""
    for kind, path in paths.items():
        tasks.spawn(f"watch {kind}", reflector(client, kind, path, on_change, on_state).run)


def reflector(client: KubeClient, kind: str, path: str, on_change: OnChange, on_state: OnState) -> Reflector:
    """A watch of one collection, to be run."""

    def changed(what: str, item: Json, old: Json | None) -> None:
        found = shapes.objects(path, [item]) if what != "DELETED" else []
        on_change(kind, key_of(item), found[0] if found else None)

    def state(problem: str) -> None:
        on_state(kind, problem, not problem)

    return Reflector(client, path, name=path.rpartition("/")[2], on_change=changed, on_state=state)


class EventFeeds:
    """Watches of the Events of one object each."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    @contextlib.asynccontextmanager
    async def about(self, obj: Json, on_change: Callable[[], None]) -> AsyncIterator[_Feed]:
        meta = obj["metadata"]
        path = _EVENTS.format(meta["namespace"])
        wanted = {"fieldSelector": f"involvedObject.uid={meta['uid']}"}
        feed = _Feed(on_change)
        feed.reflector = reflector = Reflector(
            self._client, path, name="events", params=wanted, on_change=lambda *_: feed.changed()
        )
        task = asyncio.create_task(reflector.run(), name="watch events")
        try:
            yield feed
        finally:
            await cancel_and_wait(task)


class _Feed:
    """Keeps the newest: whoever may create Events may create very many."""

    reflector: Reflector

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def changed(self) -> None:
        store = self.reflector.store
        if len(store) >= 2 * _MOST_EVENTS:
            for key in list(store)[:-_MOST_EVENTS]:
                del store[key]
        self._on_change()

    def events(self) -> Sequence[Json]:
        return shapes.objects("/api/v1/events", list(self.reflector.store.values())[-_MOST_EVENTS:])
