"""How much of the event loop the TLS handshakes of probes and hooks take: a quarter, and the namespaces take turns.

Who answers is a pod. It may have OpenSSL work for 25 ms (a chain of fifty certificates, the longest curve), and lead a
probe from one such handshake to the next by ten redirects, for each of its containers every second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from contextvars import ContextVar

from agent.common.work.gate import Gate
from nodelib.tls_records import StrangerContext

_SHARE = 0.25  # of the loop's time
_AT_ONCE = 4
_LONGEST = 0.25  # seconds that one counts as one of those: a server may be silent
_UNPAID = 0.005  # seconds that need no rest
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
    """Those of all connections with pods of the node."""

    def __init__(self) -> None:
        self._contexts: list[StrangerContext] = []
        self._gate, self._paying = Gate(_AT_ONCE, _LONGEST), asyncio.Lock()
        self._paid = 0.0  # of the seconds that they have taken

    def turns(self, context: StrangerContext) -> Callable[[], AbstractAsyncContextManager[None]]:
        """For the connections that the context is used for."""
        self._contexts.append(context)
        return self.turn

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for it, and connect inside."""
        async with self._gate.place(group=_NAMESPACE.get()):
            async with self._paying:
                await self._pay()
            yield

    async def _pay(self) -> None:
        spent = sum([one.spent for one in self._contexts])
        owed = spent - self._paid
        if owed > _UNPAID:
            await asyncio.sleep(owed / _SHARE - owed)
            self._paid = spent
