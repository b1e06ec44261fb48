"""gRPC servers on unix sockets."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Sequence

import grpc
import grpc.aio

from nodelib.errors import Temporary

MOST = 16 * 1024 * 1024
"""Bytes of a message: upstream's limit for all kubelet plugins."""
_OPTIONS = [("grpc.max_send_message_length", MOST), ("grpc.max_receive_message_length", MOST)]


async def serve(
    socket: str,
    handlers: Sequence[grpc.GenericRpcHandler],
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> grpc.aio.Server:
    """Listen at `socket`, for root only; the socket of an earlier process is replaced. Raises Temporary."""
    try:
        await asyncio.to_thread(_remove_old_socket, socket)
        server = grpc.aio.server(interceptors=tuple(interceptors), options=_OPTIONS)
        server.add_generic_rpc_handlers(tuple(handlers))
        server.add_insecure_port(f"unix://{socket}")
        await server.start()
        os.chmod(socket, 0o600)
    except (OSError, RuntimeError) as error:
        action = "Check that its directory is writable and that no other process listens there."
        raise Temporary(str(error), obj=socket, step="listen", action=action) from error
    return server


def _remove_old_socket(socket: str) -> None:
    os.makedirs(os.path.dirname(socket), mode=0o750, exist_ok=True)
    try:
        if stat.S_ISSOCK(os.lstat(socket).st_mode):
            os.unlink(socket)
    except FileNotFoundError:
        return
