"""Calls to a plugin over its unix socket."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from agent.common.model.errors import PluginError, PluginUnavailable
from nodelib.json_values import Json
from nodelib.plugin_apis.server import MOST
from nodelib.plugin_apis.wire import Api, Call
from nodelib.tasks import is_cancelled
from nodelib.threads import in_thread_if

# A restarted plugin is reconnected within a second.
_OPTIONS = [
    ("grpc.max_send_message_length", MOST),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),  # of a plugin that stops while it is called these never end (probes/grpc_check.py)
]
_LARGE = 64 * 1024  # bytes of an answer
_NO_ANSWER = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class PluginClient:
    """The connection to one plugin. Errors name it `name`; `metadata` is sent with every call. End it with close().

    `most`: bytes of an answer.
    """

    def __init__(
        self, api: Api, name: str, socket: str, metadata: Sequence[tuple[str, str]] = (), *, most: int = MOST
    ) -> None:
        self.name, self.socket = name, socket
        self._api, self._metadata = api, tuple(metadata)
        options = [*_OPTIONS, ("grpc.max_receive_message_length", most)]
        self._channel = grpc.aio.insecure_channel(f"unix://{socket}", options=options)

    def for_api(self, api: Api) -> PluginClient:
        """The same connection, for the services of another API. Only the first one closes it."""
        other = copy.copy(self)
        other._api = api
        return other

    async def call(self, method: str, fields: Mapping[str, Any], *, timeout: float, most: int = MOST) -> Json:
        """`method`: "Service.Method". Raises PluginError; `timeout` in seconds, `most`: bytes of this answer."""
        call = self._api.calls[method]
        stub = self._channel.unary_unary(call.path, request_serializer=lambda given: call.encode(given))
        with self._errors(method):
            data = await stub(self._checked(call, fields), timeout=timeout, metadata=self._metadata)
        if len(data) > most:
            text = f"an answer of {len(data)} bytes, of which at most {most} are read"
            raise PluginError(text, code="RESOURCE_EXHAUSTED", obj=self.name, step=call.path)
        return await self._decoded(call, data)

    async def stream(self, method: str, fields: Mapping[str, Any]) -> AsyncIterator[Json]:
        """Answers until the plugin ends the stream. Raises PluginError."""
        call = self._api.calls[method]
        stub = self._channel.unary_stream(call.path, request_serializer=lambda given: call.encode(given))
        with self._errors(method):
            answers = stub(self._checked(call, fields), metadata=self._metadata)
        try:
            with self._errors(method):
                async for data in answers:
                    yield await self._decoded(call, data)
        finally:
            answers.cancel()  # who listens no longer leaves nothing behind on a connection that stays

    async def _decoded(self, call: Call, data: bytes) -> Json:
        """Large answers in a thread: one of 16 MiB may have a million entries."""
        try:
            return await in_thread_if(len(data) > _LARGE, call.decode, data)
        except (DecodeError, ValueError) as error:
            raise PluginError(f"not a message: {error}", code="INTERNAL", obj=self.name, step=call.path) from error

    def is_connected(self) -> bool:
        """Whether there is a connection; asks for one, if not."""
        return self._channel.get_state(try_to_connect=True) is grpc.ChannelConnectivity.READY

    async def close(self) -> None:
        await self._channel.close(grace=None)

    def _checked(self, call: Call, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """Encode once for a good error: grpc would report a bad field as an internal error without its name."""
        try:
            call.encode(fields)
        except (TypeError, ValueError) as error:
            raise PluginError(str(error), code="INVALID_ARGUMENT", obj=self.name, step=call.path) from error
        return fields

    @contextmanager
    def _errors(self, method: str) -> Iterator[None]:
        """Raise PluginError in place of what gRPC raises.

        close() cancels the calls that are under way: to whoever waits for one it would look as if he was cancelled
        himself, and a task that runs for ever would end, without a word.
        """
        try:
            yield
        except grpc.aio.AioRpcError as error:
            raise self._translated(method, error) from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            if not self._is_closed() or is_cancelled():
                raise
            text = "the connection was closed: the plugin has left, or registered again"
            raise self._unavailable(method, text, grpc.StatusCode.CANCELLED) from error

    def _is_closed(self) -> bool:
        return self._channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN

    def _translated(self, method: str, error: grpc.aio.AioRpcError) -> PluginError:
        code = error.code()
        message = error.details() or code.name
        if code in _NO_ANSWER:
            return self._unavailable(method, message, code)
        return PluginError(message, code=code.name, obj=self.name, step=method.partition(".")[2])

    def _unavailable(self, method: str, message: str, code: grpc.StatusCode) -> PluginUnavailable:
        action = f"Check that the plugin runs and listens at {self.socket}; the agent tries again."
        return PluginUnavailable(message, code=code.name, obj=self.name, step=method.partition(".")[2], action=action)
