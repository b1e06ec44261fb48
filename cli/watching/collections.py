"""Collections of the API server, kept up to date by watches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from nodelib.json_values import Json
from nodelib.kube import shapes
from nodelib.kube.client import KubeClient
from nodelib.kube.reflector import Key, Reflector, key_of
from nodelib.tasks import Supervisor

_FIRST = 3.0  # seconds that the first lists may take before what is there is shown
_LASTS = 15.0  # seconds, more than the longest pause of a reflector: after an outage, they come back one by one


class Collections:
    """`news` is set when an object of any collection changes, or whether the API server answers.

    `paths`: by kind. `problems`: by kind, why there is no news of it. Objects are without what nothing reads of
    wrong types (nodelib.kube.shapes).
    """

    def __init__(self, client: KubeClient, paths: Mapping[str, str], news: asyncio.Event) -> None:
        self.news = news
        self.problems: dict[str, str] = {}
        self._unsaid: dict[str, str] = {}  # by kind, its newest problem since said()
        self._since: dict[str, float] = {}  # by kind, when its problem began
        self._client, self._paths = client, dict(paths)
        self._stores: dict[str, dict[Key, Json]] = {kind: {} for kind in paths}
        self._synced: set[str] = set()
        self._answered = asyncio.Event()

    def start(self, tasks: Supervisor) -> None:
        for kind, path in self._paths.items():
            tasks.spawn(f"watch {kind}s", self._reflector(kind, path).run)

    async def first(self) -> None:
        """Returns when each collection is there or has a problem, or after a while."""
        try:
            async with asyncio.timeout(_FIRST):
                while self._paths.keys() - self._synced - self.problems.keys():
                    self._answered.clear()
                    await self._answered.wait()
        except TimeoutError:
            pass

    def lists(self) -> dict[str, tuple[Json, ...]]:
        """By kind, the objects as they are known; a kind that was never listed is missing."""
        return {kind: tuple(self._stores[kind].values()) for kind in self._paths if kind in self._synced}

    def why_silent(self, kind: str) -> str:
        """Why there is no news of a kind, "" when all is well and was so since said()."""
        return self._unsaid.get(kind, "" if kind in self._synced else "no answer yet")

    def said(self) -> None:
        """A frame was made of what is known: an outage that began and ended since the one before is in it."""
        if self._unsaid != self.problems:
            self.news.set()
        self._unsaid = dict(self.problems)

    def lasting(self, kind: str) -> str:
        """why_silent(), but "" for a kind that was listed before and may only be late."""
        late = kind in self._synced and _now() - self._since.get(kind, 0.0) < _LASTS
        return "" if late else self.why_silent(kind)

    def on_state(self, kind: str, problem: str) -> None:
        """How the watch of a kind is, "" when all is well; its reflector calls this."""
        self.problems.pop(kind, None)
        if problem:
            self.problems[kind] = self._unsaid[kind] = problem
            self._since.setdefault(kind, _now())
        else:
            self._synced.add(kind)
            self._since.pop(kind, None)
        self._answered.set()
        self.news.set()

    def _reflector(self, kind: str, path: str) -> Reflector:
        store = self._stores[kind]

        def changed(what: str, item: Json, _: Json | None) -> None:
            found = shapes.objects(path, [item]) if what != "DELETED" else []
            if found:
                store[key_of(item)] = found[0]
            else:
                store.pop(key_of(item), None)
            self.news.set()

        def on_state(problem: str) -> None:
            self.on_state(kind, problem)

        return Reflector(self._client, path, name=f"{kind}s", on_change=changed, on_state=on_state)


def _now() -> float:
    return asyncio.get_running_loop().time()
