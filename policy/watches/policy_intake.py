"""Reads NetworkPolicies as they come: large ones in a thread, the newest of each, with pauses between them.

To read one of a megabyte takes a quarter of a second. Whoever may write it can do so several times a second, and on
every node the loop would have no time for the pods that start there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import orjson

from nodelib.clock import Clock
from nodelib.json_values import Json, object_or_empty
from nodelib.threads import alone
from policy.model import Name, Policy, Problem
from policy.plan import parse

_LARGE = 32 << 10  # bytes as JSON; what has less takes milliseconds
_LEAST_PAUSE = 0.05  # seconds

OnPolicy = Callable[[Policy, str, Sequence[Problem]], None]


class PolicyIntake:
    """`took(policy, uid, problems)` is called with each policy as it is now, `gone(name)` when it was deleted."""

    def __init__(self, took: OnPolicy, gone: Callable[[Name], None], clock: Clock) -> None:
        self._took, self._gone, self._clock = took, gone, clock
        self._waiting: dict[Name, Json] = {}  # the newest of each, in the order in which they began to wait
        self._reading: Name | None = None
        self._news, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def on_policy(self, kind: str, obj: Json) -> None:
        """A change from the watch."""
        name = parse.name_of(obj)
        if kind == "DELETED":
            self._waiting.pop(name, None)
            self._reading = None if self._reading == name else self._reading  # what is read of it counts no more
            self._gone(name)
        elif name in self._waiting or name == self._reading or _is_large(obj):
            self._waiting[name] = dict(obj)  # the watch empties its own
            self._idle.clear()
            self._news.set()
        else:
            self._tell(obj, *parse.policy(obj))

    async def run(self) -> None:
        """Until cancelled: read what is large."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                began = self._clock.monotonic()
                await self._read_next()
                if not self._waiting:
                    break
                await self._clock.sleep(max(_LEAST_PAUSE, self._clock.monotonic() - began))
            self._idle.set()

    async def settled(self) -> None:
        """Wait until everything that has come was read."""
        await self._idle.wait()

    async def _read_next(self) -> None:
        name = next(iter(self._waiting))
        obj, self._reading = self._waiting.pop(name), name
        try:
            policy, problems = await alone(parse.policy, obj)
            if self._reading == name:
                self._tell(obj, policy, problems)
        finally:
            self._reading = None

    def _tell(self, obj: Json, policy: Policy, problems: Sequence[Problem]) -> None:
        self._took(policy, str(object_or_empty(obj.get("metadata")).get("uid", "")), problems)


def _is_large(obj: Json) -> bool:
    try:
        return len(orjson.dumps(obj.get("spec"))) > _LARGE
    except TypeError:  # a text that is none, a number that is too long
        return True
