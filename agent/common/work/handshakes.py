"""How much of the event loop the TLS handshakes of probes and hooks take: a quarter for each namespace, half for all.

Who answers is a pod. It may have OpenSSL work for 25 ms (a chain of fifty certificates, the longest curve), and lead a
probe from one such handshake to the next by ten redirects, for each of its containers every second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from agent.common import turn_waits
from agent.common.work.gate import Gate
from nodelib.loop_share import LoopShare
from nodelib.tls_records import StrangerContext

_SHARE, _SHARE_OF_ALL = 0.25, 0.5  # of the loop's time: for the pods of a namespace, for those of all together
_AT_ONCE, _AT_ONCE_OF_ALL = 4, 8
_LONGEST = 0.25  # seconds that one counts as one of those: a server may be silent
_OWED = 0.005  # seconds for which no rest is made yet
_MOST_KEPT = 256  # namespaces whose pods nobody asks at the moment
_NAMESPACE = ContextVar("the namespace of the pod that is asked", default="")


@contextmanager
def of_namespace(name: str) -> Iterator[None]:
    """Connections that are made inside are for a pod of that namespace."""
    before = _NAMESPACE.set(name)
    try:
        yield
    finally:
        _NAMESPACE.reset(before)


@dataclass(slots=True)
class _Namespace:
    gate: Gate
    share: LoopShare
    users: int = 0  # that wait for a turn, or have one


class Handshakes:
    """The handshakes of all connections with pods of the node. Waiting for a turn does not count as a probe's time
    (agent/common/turn_waits.py): a pod is not to blame for the handshakes of others.
    """

    def __init__(self) -> None:
        self._contexts: list[StrangerContext] = []
        self._gate, self._share = Gate(_AT_ONCE_OF_ALL, _LONGEST), LoopShare(_SHARE_OF_ALL, _OWED)
        self._namespaces: dict[str, _Namespace] = {}
        self._charged = 0.0  # of the seconds that handshakes have taken

    def turns_for(self, context: StrangerContext) -> Callable[[], AbstractAsyncContextManager[None]]:
        """What the connections that the context is used for are to be made in."""
        self._contexts.append(context)
        return self.turn

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait for it, and connect inside."""
        name = _NAMESPACE.get()
        own = self._namespaces.get(name)
        if own is None:
            own = self._namespaces[name] = _Namespace(Gate(_AT_ONCE, _LONGEST), LoopShare(_SHARE, _OWED))
        own.users += 1
        try:
            async with AsyncExitStack() as held:
                with turn_waits.waiting():
                    await held.enter_async_context(own.gate.place())
                    await own.share.rest()
                    await held.enter_async_context(self._gate.place(group=name))
                    await self._share.rest()
                try:
                    yield
                finally:
                    self._charge(own)
        finally:
            own.users -= 1
            self._forget()

    def _charge(self, own: _Namespace) -> None:
        """All that was spent since the last charge: of those that go on side by side that is near enough."""
        spent = sum([one.spent for one in self._contexts])
        for share in (own.share, self._share):
            share.charge(spent - self._charged)
        self._charged = spent

    def _forget(self) -> None:
        """Not at once: who asks now and then would never rest."""
        if len(self._namespaces) > _MOST_KEPT:
            now = asyncio.get_running_loop().time()
            kept = {name: one for name, one in self._namespaces.items() if one.users or one.share.rests_until > now}
            self._namespaces = kept
