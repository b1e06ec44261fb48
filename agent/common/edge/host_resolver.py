"""Host names that pods choose (of probes and lifecycle hooks), resolved apart from the names of the agent itself.

A resolver of the C library cannot be interrupted, and an event loop resolves in a few threads (uvloop: four). Whoever
may name a host whose name server never answers would hold them all, and with them the connection to the API server.
Here each lookup has a thread of its own, a name is asked for once at a time, and a pod and the whole node have a limit.
Upstream resolves in as many goroutines as there are probes.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from agent.common.model.addresses import is_address
from nodelib.threads import alone

_MOST, _MOST_OF_A_POD = 64, 4  # lookups at once
_LIMIT = 10.0  # seconds
_LONGEST_NAME = 253  # characters, RFC 1035

Lookup = Callable[[str], list[str]]


class HostResolver:
    """At most `most` lookups run at once, `most_of_a_pod` of them for one pod; who asks waits for `limit` seconds.

    `lookup(host)` blocks for as long as the C library does, and raises OSError.
    """

    def __init__(
        self,
        lookup: Lookup | None = None,
        *,
        limit: float = _LIMIT,
        most: int = _MOST,
        most_of_a_pod: int = _MOST_OF_A_POD,
    ) -> None:
        self._lookup = lookup or _ask_the_system
        self._limit, self._most, self._most_of_a_pod = limit, most, most_of_a_pod
        self._running: dict[str, asyncio.Task[list[str]]] = {}
        self._by_pod: Counter[str] = Counter()
        self._ended = asyncio.Event()

    async def addresses(self, host: str, pod: str) -> list[str]:
        """The addresses of `host`, at least one; `pod` is the UID of the pod that names it.

        Raises OSError: there are none, or no answer within ten seconds. A lookup that nobody waits for any more
        keeps its place until the C library gives up.
        """
        if is_address(host):
            return [host]
        if not host or len(host) > _LONGEST_NAME or not host.isprintable():
            raise OSError(f"lookup {host[:_LONGEST_NAME]!r}: no such host")
        try:
            async with asyncio.timeout(self._limit):
                return await asyncio.shield(await self._started(host, pod))
        except TimeoutError:
            raise OSError(f"lookup {host}: i/o timeout") from None
        except OSError as error:
            raise OSError(f"lookup {host}: {_cause(error)}") from error

    async def _started(self, host: str, pod: str) -> asyncio.Task[list[str]]:
        """The lookup of `host`, which may be another caller's, once there is room for it."""
        while (running := self._running.get(host)) is None:
            if len(self._running) < self._most and self._by_pod[pod] < self._most_of_a_pod:
                running = self._running[host] = asyncio.create_task(alone(self._lookup, host), name=f"lookup {host}")
                self._by_pod[pod] += 1
                running.add_done_callback(lambda done: self._end(done, host, pod))
                break
            await self._ended.wait()
        return running

    def _end(self, done: asyncio.Task[list[str]], host: str, pod: str) -> None:
        if not done.cancelled():
            done.exception()  # seen here, because those who asked may have gone
        del self._running[host]
        self._by_pod -= Counter([pod])
        self._ended.set()
        self._ended = asyncio.Event()


class PodResolver(AbstractResolver):
    """The names of one pod, for an aiohttp connector."""

    def __init__(self, resolver: HostResolver, pod: str) -> None:
        self._resolver, self._pod = resolver, pod

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [_result(host, one, port) for one in await self._resolver.addresses(host, self._pod)]

    async def close(self) -> None:
        return None


def _result(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return ResolveResult(
        hostname=host, host=address, port=port, family=family, proto=socket.IPPROTO_TCP, flags=socket.AI_NUMERICHOST
    )


def _ask_the_system(host: str) -> list[str]:
    try:
        found: list[Any] = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except UnicodeError as error:  # a label that is too long
        raise OSError("no such host") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def _cause(error: OSError) -> str:
    """In the words of Go's resolver, which users of Kubernetes know."""
    if isinstance(error, socket.gaierror):
        if error.errno in (socket.EAI_NONAME, socket.EAI_NODATA):
            return "no such host"
        if error.errno == socket.EAI_AGAIN:
            return "i/o timeout"
    return error.strerror or str(error)
