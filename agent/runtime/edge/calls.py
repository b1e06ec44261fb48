"""Calls of a runtime: how its channels are set, how each call is counted, and what becomes of its error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import grpc
import grpc.aio

from agent.common.model.errors import CriError, CriNotFound, CriUnavailable

_MESSAGE_BYTES = 16 * 1024 * 1024

# A runtime that restarts is back in a second or two: gRPC's default of up to two minutes between dials is too slow.
# "min_reconnect_backoff" is also the time that one dial may take (grpc's subchannel.cc): too short on a busy machine,
# and there is never a connection.
OPTIONS = [
    ("grpc.max_receive_message_length", _MESSAGE_BYTES),
    ("grpc.max_send_message_length", _MESSAGE_BYTES),
    # containerd's calls wait until their event is sent (internal/eventq): what a busy loop has not read must fit.
    ("grpc.http2.lookahead_bytes", 4 * 1024 * 1024),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),  # of a runtime that stops while it is called these never end (probes/grpc_check.py)
]
# For commands of probes and hooks: a namespace may have hundreds, and the runtime sends 16 MiB of what each wrote.
COMMAND_OPTIONS = [*{**dict(OPTIONS), "grpc.max_receive_message_length": 1024 * 1024}.items()]
# Names in upstream's metrics, where they differ from the step (kuberuntime/instrumented_services.go).
_OPERATIONS = {
    "list sandboxes": "list_podsandbox",
    "sandbox status": "podsandbox_status",
    "run sandbox": "run_podsandbox",
    "stop sandbox": "stop_podsandbox",
    "remove sandbox": "remove_podsandbox",
    "update sandbox": "update_podsandbox_resources",
    "update resources": "update_container",
    "reopen log": "reopen_container_log",
    "sandbox stats": "list_podsandbox_stats",
    "image filesystem": "image_fs_info",
}
Operation = Callable[[str], AbstractContextManager[None]]
_UNAVAILABLE = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class Calls:
    """`operation(kind)` is entered around each call; `endpoint` is what an error of the connection names."""

    def __init__(self, endpoint: str, operation: Operation | None) -> None:
        self._endpoint, self._operation = endpoint, operation or (lambda kind: nullcontext())

    async def ask(self, step: str, obj: str, call: Awaitable[Any], *, operation: str = "") -> Any:
        with self._operation(operation or _OPERATIONS.get(step) or step.replace(" ", "_")):
            try:
                answer = await call
            except grpc.aio.AioRpcError as error:
                raise self.translated(step, obj, error) from error
        if answer is None:  # grpc's way of saying so
            raise CriError("the runtime's answer is not a message of the CRI", obj=obj, step=step, code="INTERNAL")
        return answer

    async def ignore_not_found(self, step: str, obj: str, call: Awaitable[Any]) -> None:
        try:
            await self.ask(step, obj, call)
        except CriNotFound:
            return

    def translated(self, step: str, obj: str, error: grpc.aio.AioRpcError) -> CriError:
        code = error.code()
        message = error.details() or code.name
        if code is grpc.StatusCode.NOT_FOUND:
            return CriNotFound(message, code=code.name, obj=obj, step=step)
        if code in _UNAVAILABLE:
            action = ""
            if code is grpc.StatusCode.UNAVAILABLE:
                action = f"Check that the container runtime runs and listens at {self._endpoint}; it is tried again."
            return CriUnavailable(message, code=code.name, obj=obj, step=step, action=action)
        return CriError(message, code=code.name, obj=obj, step=step)
