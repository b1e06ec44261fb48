"""Reads NetworkPolicies as they come: large ones in a thread, the newest of each, with pauses between them.

To read one of a megabyte takes a quarter of a second. Whoever may write it can do so several times a second, and on
every node the loop would have no time for the pods that start there. What follows from it takes longer yet, so that a
namespace which writes much waits: a policy of a megabyte costs each node that has a pod of it seconds of planning and
of the kernel's time, in which no new pod of anybody gets its rules. What it has had read meanwhile stays in force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from nodelib.clock import Clock, at_most
from nodelib.json_values import Json, encoded_size, object_or_empty
from nodelib.namespace_allowance import NamespaceAllowance
from nodelib.threads import alone
from policy.model import Name, Policy, Problem
from policy.plan import parse

log = logging.getLogger(__name__)

_LARGE = 32 << 10  # bytes as JSON; what has less takes milliseconds
_LEAST_PAUSE = 0.05  # seconds
# What a namespace may have read.
_STORE = 1 << 20  # bytes at once
_RATE = 12 << 10  # bytes a second: of the most expensive policies, some seconds of work in two minutes
_LEAST = 256  # bytes that any change costs
_KEPT = 1000  # namespaces

OnPolicy = Callable[[Policy, str, Sequence[Problem]], None]


class PolicyIntake:
    """`took(policy, uid, problems)` is called with each policy as it is now, `gone(name)` when it was deleted."""

    def __init__(self, took: OnPolicy, gone: Callable[[Name], None], clock: Clock) -> None:
        self._took, self._gone, self._clock = took, gone, clock
        # By namespace, whose turn is next first: the newest of each with its size, in the order in which they came.
        self._waiting: dict[str, dict[Name, tuple[Json, int]]] = {}
        self._reading: Name | None = None
        self._allowance = NamespaceAllowance(_STORE, _RATE, _KEPT)
        self._listed = False
        self._news, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def on_policy(self, kind: str, obj: Json) -> None:
        """A change from the watch."""
        name = parse.name_of(obj)
        waiting = self._waiting.get(name.namespace, {})
        if kind == "DELETED":
            waiting.pop(name, None)
            self._reading = None if self._reading == name else self._reading  # what is read of it counts no more
            self._gone(name)
            return
        size, wait = _size(obj), self._wait(name.namespace)
        if name in waiting or name == self._reading or size > _LARGE or wait:
            if wait and not waiting:
                text = "namespace %s has written so much of NetworkPolicies that what changes now waits for %.0f s"
                log.warning(text, name.namespace, wait)
            # The watch empties its own object.
            self._waiting.setdefault(name.namespace, waiting)[name] = dict(obj), size
            self._idle.clear()
            self._news.set()
        else:
            self._spend(name, size)
            self._tell(obj, *parse.policy(obj))

    async def run(self) -> None:
        """Until cancelled: read what is large."""
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                began = self._clock.monotonic()
                if wait := await self._read_next():
                    await at_most(self._clock, wait, self._news)
                    self._news.clear()
                elif self._waiting:
                    await self._clock.sleep(max(_LEAST_PAUSE, self._clock.monotonic() - began))
            self._idle.set()

    async def settled(self) -> None:
        """Wait until everything that has come was read. What comes from then on is new, and may have to wait."""
        await self._idle.wait()
        self._listed = True

    def _wait(self, namespace: str) -> float:
        """Seconds until one of the namespace may be read."""
        return self._allowance.wait(namespace, self._clock.monotonic()) if self._listed else 0.0

    def _spend(self, name: Name, size: int) -> None:
        if self._listed:
            self._allowance.spend(name.namespace, max(size, _LEAST), self._clock.monotonic())

    async def _read_next(self) -> float:
        """Read one. Returns the seconds until one may be read, 0 if it was."""
        least = float("inf")
        for namespace, waiting in list(self._waiting.items()):
            wait = self._wait(namespace) if waiting else 0.0
            if not wait:
                del self._waiting[namespace]
                if waiting:
                    await self._read(waiting)
                return 0.0
            least = min(least, wait)
        return least

    async def _read(self, waiting: dict[Name, tuple[Json, int]]) -> None:
        """Read the first of a namespace; the others wait until other namespaces have had their turn."""
        name = next(iter(waiting))
        (obj, size), self._reading = waiting.pop(name), name
        if waiting:
            self._waiting[name.namespace] = waiting
        self._spend(name, size)
        try:
            policy, problems = await alone(parse.policy, obj)
            if self._reading == name:
                self._tell(obj, policy, problems)
        finally:
            self._reading = None

    def _tell(self, obj: Json, policy: Policy, problems: Sequence[Problem]) -> None:
        self._took(policy, str(object_or_empty(obj.get("metadata")).get("uid", "")), problems)


def _size(obj: Json) -> int:
    """Bytes as JSON."""
    try:
        return encoded_size(obj.get("spec"))
    except TypeError:  # a text that is none, a number that is too long
        return _LARGE + 1
