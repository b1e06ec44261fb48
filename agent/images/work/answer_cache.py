"""The answers of credential provider plugins, for as long as they say, within bounds.

Whoever may create pods chooses the images, and by his service accounts and their annotations for whom an answer is:
without bounds he would choose how much of the agent's memory they take, too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection

from agent.images.plan.credential_providers import Answer

Key = tuple[str, str, str]
"""Name of the plugin, for whom the answer is, and its cache key."""

_MOST, _MOST_TEXT = 1000, 16 << 20  # answers, and characters of all of them


class AnswerCache:
    """Where there is no room, the oldest answers go: their plugin is asked again. `monotonic()` in seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: dict[Key, tuple[float, int, Answer]] = {}  # until when, characters; the oldest first
        self._size = 0

    def put(self, key: Key, found: Answer) -> None:
        """Keep it for as long as it says."""
        self._drop((_short(key),))
        size = _size(found)
        if found.seconds <= 0 or size > _MOST_TEXT:
            return
        self._known[_short(key)] = self._monotonic() + found.seconds, size, found
        self._size += size
        self._drop([one for one, (until, _, _) in self._known.items() if until <= self._monotonic()])
        while len(self._known) > _MOST or self._size > _MOST_TEXT:
            self._drop((next(iter(self._known)),))

    def get(self, key: Key) -> Answer | None:
        """None: there is none that still counts."""
        until, _, found = self._known.get(_short(key), (0.0, 0, None))
        return found if found is not None and until > self._monotonic() else None

    def _drop(self, keys: Collection[Key]) -> None:
        for key in keys:
            _, size, _ = self._known.pop(key, (0.0, 0, None))
            self._size -= size


def _short(key: Key) -> Key:
    """Without the annotations of a service account, which may be as long as 256 KiB."""
    name, scope, found = key
    return name, hashlib.sha256(scope.encode()).hexdigest(), found


def _size(found: Answer) -> int:
    entries = found.credentials.items()
    return sum(len(pattern) + sum(map(len, one.auth.values())) for pattern, one in entries)
