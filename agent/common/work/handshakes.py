"""How much of the event loop the TLS handshakes of probes and hooks take: a quarter for each namespace.

Who answers is a pod. It may have OpenSSL work for 25 ms (a chain of fifty certificates, the longest curve), and lead a
probe from one such handshake to the next by ten redirects, for each of its containers every second.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar

from agent.common.work.gate import Gate
from nodelib import turn_waits
from nodelib.tls_records import StrangerContext

_SHARE = 0.25  # of the loop's time, for the pods of a namespace
_AT_ONCE = 4  # of all namespaces, and one of each
_LONGEST = 0.25  # seconds that one counts as one of those: a server may be silent
_OWED = 0.005  # seconds for which no rest is made yet
_NAMESPACE = ContextVar("the namespace of the pod that is asked", default="")


@contextmanager
def of_namespace(name: str) -> Iterator[None]:
    """Connections that are made inside are for a pod of that namespace."""
    before = _NAMESPACE.set(name)
    try:
        yield
    finally:
        _NAMESPACE.reset(before)


class Handshakes:
    """Those of all connections with pods of the node. Who waits here does so in his own time (nodelib/turn_waits.py):
    neither are pods to blame for what those of others do, nor a namespace for having many.
    """

    def __init__(self) -> None:
        self._contexts: list[StrangerContext] = []
        self._gate = Gate(_AT_ONCE, _LONGEST)
        self._own: defaultdict[str, Gate] = defaultdict(lambda: Gate(1, _LONGEST))
        self._seen = 0.0  # of the seconds that they have taken, those that somebody owes
        self._owed: defaultdict[str, float] = defaultdict(float)  # by namespace
        self._rests: dict[str, float] = {}  # until when each does

    def turns(self, context: StrangerContext) -> Callable[[], AbstractAsyncContextManager[None]]:
        """For the connections that the context is used for."""
        self._contexts.append(context)
        return self.turn

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for it, and connect inside."""
        namespace = _NAMESPACE.get()
        own = self._own[namespace]
        try:
            async with AsyncExitStack() as held:
                with turn_waits.waiting():
                    await held.enter_async_context(own.place())
                    await self._rest(namespace)
                    await held.enter_async_context(self._gate.place(group=namespace))
                try:
                    yield
                finally:
                    self._charge(namespace)
        finally:
            if not own.waiting and self._own.get(namespace) is own:
                del self._own[namespace]

    async def _rest(self, namespace: str) -> None:
        loop = asyncio.get_running_loop()
        while (left := self._rests.get(namespace, 0.0) - loop.time()) > 0:
            await asyncio.sleep(left)
        self._rests.pop(namespace, None)

    def _charge(self, namespace: str) -> None:
        """What they took since somebody was charged last; of those that go on side by side that is near enough."""
        spent = sum([one.spent for one in self._contexts])
        self._owed[namespace] += spent - self._seen
        self._seen = spent
        if self._owed[namespace] > _OWED:
            owed = self._owed.pop(namespace)
            now = asyncio.get_running_loop().time()
            self._rests[namespace] = max(now, self._rests.get(namespace, now)) + owed / _SHARE - owed
