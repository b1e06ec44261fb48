"""Work on what users write, whose length they choose: it holds up neither the event loop nor other namespaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from nodelib.key_locks import KeyLocks
from nodelib.threads import alone

P = ParamSpec("P")
T = TypeVar("T")


class NamespaceThreads:
    """A thread for each namespace that has work: one piece at a time."""

    def __init__(self) -> None:
        self._turns = KeyLocks[str]()

    async def run(self, namespace: str, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """What `work` returns or raises. If cancelled, the thread runs to its end."""
        async with self._turns.of(namespace):
            return await alone(work, *args, **kwargs)
