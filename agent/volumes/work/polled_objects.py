"""ConfigMaps and Secrets that are asked for, and not watched: configMapAndSecretChangeDetectionStrategy Get and Cache.

Upstream: pkg/kubelet/util/manager/cache_based_manager.go. There, each sync of a pod asks for the objects that it uses;
here nothing syncs pods by the clock, so every user is notified after syncFrequency, spread as upstream's syncs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from agent.volumes.work.held_objects import HeldObjects
from agent.volumes.work.watched_objects import ObjectKey, no_answer
from nodelib.clock import Clock
from nodelib.errors import Temporary
from nodelib.json_values import Json
from nodelib.kube.client import KubeClient
from nodelib.kube.errors import ApiError
from nodelib.tasks import Work
from nodelib.text_numbers import is_number

_SPREAD = 0.5  # of the period (workerResyncIntervalJitterFactor)
_FROM_CACHE = {"resourceVersion": "0"}  # a refresh need not ask etcd


@dataclass(slots=True)
class _Entry:
    """`asked`: when the server last answered (monotonic seconds), None: never, or somebody new needs the newest."""

    users: set[str] = field(default_factory=set)
    current: Json | None = None
    asked: float | None = None
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class PolledObjects:
    """`notify(uid)` is called for each user every `period` seconds or a little later.

    `ttl()`: seconds that an answer counts; None: none does, every get() asks, and an error is told although an answer
    is known.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Clock,
        notify: Callable[[str], None],
        *,
        period: float,
        ttl: Callable[[], float] | None,
        chance: Callable[[], float] = random.random,
        held: HeldObjects | None = None,
    ) -> None:
        self._client, self._clock, self._notify = client, clock, notify
        self._period, self._ttl, self._chance = period, ttl, chance
        self._held = held or HeldObjects()
        self._entries: dict[ObjectKey, _Entry] = {}
        self._due: dict[str, float] = {}

    def tasks(self) -> list[tuple[str, Work]]:
        """(name, work) of the long-lived tasks."""
        return [("object polls", self.run)]

    async def get(self, user: str, key: ObjectKey) -> Json | None:
        """The object, None when it does not exist. Raises Temporary when the API server does not answer or refuses."""
        entry = self._entries.setdefault(key, _Entry())
        if user not in entry.users:
            entry.users.add(user)
            entry.asked = None
            self._due.setdefault(user, self._next())
        async with entry.asking:
            if not self._fresh(entry):
                await self._ask(key, entry)
            return entry.current

    def drop_user(self, user: str) -> None:
        """`user` needs no object any more."""
        self._due.pop(user, None)
        for key, entry in list(self._entries.items()):
            entry.users.discard(user)
            if not entry.users:
                del self._entries[key]
                self._held.drop(key, key.namespace)

    async def run(self) -> None:
        """Until cancelled: notify each user when its time has come."""
        while True:
            now = self._clock.monotonic()
            # Nobody who comes meanwhile is due before a period has passed.
            await self._clock.sleep(min([self._period, *(at - now for at in self._due.values())]))
            now = self._clock.monotonic()
            for user in sorted(user for user, at in self._due.items() if at <= now):
                self._due[user] = self._next()
                self._notify(user)

    async def close(self) -> None:
        self._entries.clear()
        self._due.clear()

    def _next(self) -> float:
        return self._clock.monotonic() + self._period * (1 + _SPREAD * self._chance())

    def _fresh(self, entry: _Entry) -> bool:
        return self._ttl is not None and entry.asked is not None and self._clock.monotonic() < entry.asked + self._ttl()

    async def _ask(self, key: ObjectKey, entry: _Entry) -> None:
        refresh = self._ttl is not None and entry.current is not None and entry.asked is not None
        began = self._clock.monotonic()
        try:
            found = await self._client.get(f"{key.collection}/{key.name}", _FROM_CACHE if refresh else None)
        except (ApiError, Temporary) as error:
            if isinstance(error, ApiError) and error.is_not_found:
                entry.current, entry.asked = None, began
                self._held.drop(key, key.namespace)
            elif not refresh:
                raise no_answer(key, error) from error
            return
        if refresh and _older(found, entry.current or {}):
            return
        if self._entries.get(key) is entry and not self._held.fits(key, key.namespace, found):
            entry.current = entry.asked = None
            raise self._held.refusal(key, key.namespace)
        entry.current, entry.asked = found, began


def _older(found: Json, known: Json) -> bool:
    """Whether the server's cache has not seen what this node has."""
    versions = [str((one.get("metadata") or {}).get("resourceVersion", "")) for one in (found, known)]
    return all(map(is_number, versions)) and int(versions[0]) < int(versions[1])
