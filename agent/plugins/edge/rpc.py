"""Calls to a plugin over its unix socket, and servers on sockets of the agent."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from agent.common.model.errors import PluginError, PluginUnavailable
from agent.plugins.edge.wire import Api, Call
from nodelib.errors import Temporary
from nodelib.json_values import Json

# A restarted plugin is reconnected within a second. The message size is upstream's for all kubelet plugins.
_MOST = 16 * 1024 * 1024  # bytes
_OPTIONS = [
    ("grpc.max_send_message_length", _MOST),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
]
_RECEIVED = ("grpc.max_receive_message_length", _MOST)
_NO_ANSWER = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class PluginClient:
    """The connection to one plugin. Errors name it `name`; `metadata` is sent with every call. End it with close().

    `most`: bytes of an answer.
    """

    def __init__(
        self, api: Api, name: str, socket: str, metadata: Sequence[tuple[str, str]] = (), *, most: int = _MOST
    ) -> None:
        self.name, self.socket = name, socket
        self._api, self._metadata = api, tuple(metadata)
        options = [*_OPTIONS, ("grpc.max_receive_message_length", most)]
        self._channel = grpc.aio.insecure_channel(f"unix://{socket}", options=options)

    async def call(self, method: str, fields: Mapping[str, Any], *, timeout: float) -> Json:
        """`method`: "Service.Method". Raises PluginError; `timeout` in seconds."""
        call = self._api.calls[method]
        stub = self._channel.unary_unary(
            call.path, request_serializer=lambda given: call.encode(given), response_deserializer=call.decode
        )
        try:
            return dict(await stub(self._checked(call, fields), timeout=timeout, metadata=self._metadata))
        except grpc.aio.AioRpcError as error:
            raise self._translated(method, error) from error

    async def stream(self, method: str, fields: Mapping[str, Any]) -> AsyncIterator[Json]:
        """Answers until the plugin ends the stream. Raises PluginError."""
        call = self._api.calls[method]
        stub = self._channel.unary_stream(
            call.path, request_serializer=lambda given: call.encode(given), response_deserializer=call.decode
        )
        try:
            async for answer in stub(self._checked(call, fields), metadata=self._metadata):
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._translated(method, error) from error

    async def close(self) -> None:
        await self._channel.close(grace=None)

    def _checked(self, call: Call, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Encode once for a good error: grpc would report a bad field as an internal error without its name."""
        try:
            call.encode(fields)
        except (TypeError, ValueError) as error:
            raise PluginError(str(error), code="INVALID_ARGUMENT", obj=self.name, step=call.path) from error
        return fields

    def _translated(self, method: str, error: grpc.aio.AioRpcError) -> PluginError:
        code = error.code()
        message = error.details() or code.name
        step = method.partition(".")[2]
        if code in _NO_ANSWER:
            action = f"Check that the plugin runs and listens at {self.socket}; the agent tries again."
            return PluginUnavailable(message, code=code.name, obj=self.name, step=step, action=action)
        return PluginError(message, code=code.name, obj=self.name, step=step)


async def serve(
    socket: str,
    handlers: Sequence[grpc.GenericRpcHandler],
    interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
) -> grpc.aio.Server:
    """Listen at `socket`, for root only; the socket of an earlier agent is replaced. Raises Temporary."""
    try:
        await asyncio.to_thread(_remove_old_socket, socket)
        server = grpc.aio.server(interceptors=tuple(interceptors), options=[*_OPTIONS, _RECEIVED])
        server.add_generic_rpc_handlers(tuple(handlers))
        server.add_insecure_port(f"unix://{socket}")
        await server.start()
        os.chmod(socket, 0o600)
    except (OSError, RuntimeError) as error:
        action = "Check that its directory is writable and that no other kubelet listens there."
        raise Temporary(str(error), obj=socket, step="listen", action=action) from error
    return server


def _remove_old_socket(socket: str) -> None:
    os.makedirs(os.path.dirname(socket), mode=0o750, exist_ok=True)
    try:
        if stat.S_ISSOCK(os.lstat(socket).st_mode):
            os.unlink(socket)
    except FileNotFoundError:
        return
