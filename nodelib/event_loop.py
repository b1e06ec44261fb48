"""The event loop of a daemon that has many connections: uvloop's, with one of its faults mended."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import uvloop


class Loop(uvloop.Loop):  # type: ignore[misc]  # mypy does not read uvloop
    """A connection is never closed by the number that its descriptor had.

    uvloop closes the descriptor of a socket that it was given, and then tells the socket. Where the peer resets the
    connection while its transport begins, nobody tells it, and the socket closes the same number once more when it is
    collected: by then that is another connection, or a file. aiohttp gives a socket for each of its connections, so any
    server that is asked decides when that happens (a pod that is probed, an API server that is killed). uvloop 0.23
    mends it for calls that are cancelled only: https://github.com/MagicStack/uvloop/issues/738.
    """

    async def create_connection(
        self, protocol_factory: Callable[[], Any], *args: Any, sock: socket.socket | None = None, **kwargs: Any
    ) -> Any:
        """As asyncio's. `sock` is the loop's from now on, whatever becomes of the connection."""
        return await super().create_connection(protocol_factory, *args, sock=_given(sock), **kwargs)

    async def create_unix_connection(
        self, protocol_factory: Callable[[], Any], *args: Any, sock: socket.socket | None = None, **kwargs: Any
    ) -> Any:
        """As create_connection()."""
        return await super().create_unix_connection(protocol_factory, *args, sock=_given(sock), **kwargs)


class _Given(socket.socket):
    """A socket whose descriptor only the loop closes."""

    __slots__ = ()

    def __del__(self) -> None:
        self.detach()


def _given(sock: socket.socket | None) -> socket.socket | None:
    return _Given(sock.family, sock.type, sock.proto, sock.detach()) if sock is not None else None
