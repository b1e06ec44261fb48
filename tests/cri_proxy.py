"""A CRI runtime between an agent and a real containerd that fails on demand.

Both services pass through, message by message. By `rate`, and decided by a seed: calls are refused, answered as if
nobody were there, late, or done with the answer lost; events are lost, doubled and late. By `hang(method, pod)`: every
such call of one pod waits until the block ends, as a stuck runtime, registry or disk would have it. (A pull
is recognised by the last part of its image's name: several pods may want it.) By `on_moment`: something happens at an
exact moment of a call. As with containerd itself, a call is cancelled when its caller goes away.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from enum import Enum
from typing import Any

import grpc
import grpc.aio
from cri_api.v1 import api_pb2
from google.protobuf import message_factory

SERVICES = ("RuntimeService", "ImageService")
# What a node says of itself stays true: else the control plane would have a say in how a test ends.
SPARED = {"Status", "Version", "RuntimeConfig", "UpdateRuntimeConfig"}
_LATE = 1.5  # seconds at most
MALFORMED = b"\xff" * 64  # no message of any kind
# A runtime that was killed is back in a second or two.
_OPTIONS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]


class Moment(Enum):
    """Of a call: the runtime does not have it yet; has it; has answered, and the caller does not know; the caller has
    the answer too."""

    ASKED = "asked"
    UNDER_WAY = "under way"
    DONE = "done"
    ANSWERED = "answered"


OnMoment = Callable[[str, str, Moment], Awaitable[None]]


class CriProxy:
    """serve(), then close(). `faults` counts what went wrong by "method kind"; `rate` 0: everything passes."""

    def __init__(self, upstream: str, seed: int = 0) -> None:
        self.rate = 0.0
        self.faults: Counter[str] = Counter()
        self.waiting: Counter[tuple[str, str]] = Counter()
        self.on_moment: OnMoment | None = None  # awaited with the method, the pod's name ("": not known) and the moment
        self._after = set[asyncio.Task[None]]()
        self._dice = random.Random(seed)
        self._channel = grpc.aio.insecure_channel(f"unix://{upstream}", options=_OPTIONS)
        self._server = grpc.aio.server()
        self._gates: dict[tuple[str, str], asyncio.Event] = {}
        self._ways: dict[str, str] = {}  # method -> the way in which each call of it goes wrong
        self._pods: dict[str, str] = {}  # id of a sandbox or container -> name of its pod

    async def serve(self, path: str) -> None:
        for service in SERVICES:
            methods = api_pb2.DESCRIPTOR.services_by_name[service].methods
            handlers = {method.name: self._handler(service, method) for method in methods}
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(f"runtime.v1.{service}", handlers),)
            )
        assert self._server.add_insecure_port(f"unix://{path}")
        await self._server.start()

    async def close(self) -> None:
        for gate in self._gates.values():
            gate.set()
        await self._server.stop(0.5)
        await self._channel.close(grace=None)

    @contextlib.contextmanager
    def hang(self, method: str, pod: str) -> Iterator[None]:
        """Calls of this method about this pod are held until the block ends; then they go their way."""
        gate = self._gates[method, pod] = asyncio.Event()
        try:
            yield
        finally:
            gate.set()
            del self._gates[method, pod]

    @contextlib.contextmanager
    def every(self, method: str, way: str) -> Iterator[None]:
        """Every call of this method goes wrong in this way until the block ends."""
        self._ways[method] = way
        try:
            yield
        finally:
            del self._ways[method]

    def _handler(self, service: str, method: Any) -> grpc.RpcMethodHandler:
        asked = message_factory.GetMessageClass(method.input_type)
        answered = message_factory.GetMessageClass(method.output_type)
        name, path = method.name, f"/runtime.v1.{service}/{method.name}"
        coding = {"request_deserializer": asked.FromString, "response_serializer": _encoded}
        onward = {"request_serializer": asked.SerializeToString, "response_deserializer": answered.FromString}
        if method.server_streaming:
            stream = self._channel.unary_stream(path, **onward)

            async def streamed(request: Any, context: Any) -> AsyncIterator[Any]:
                async for message in self._bent(name, stream(request)):
                    yield message

            return grpc.unary_stream_rpc_method_handler(streamed, **coding)
        call = self._channel.unary_unary(path, **onward)

        async def unary(request: Any, context: Any) -> Any:
            try:
                return await self._unary(name, call, request, context)
            except grpc.aio.AioRpcError as error:
                return await context.abort(error.code(), error.details())

        return grpc.unary_unary_rpc_method_handler(unary, **coding)

    async def _unary(self, name: str, call: Any, request: Any, context: Any) -> Any:
        pod = self._pod_of(request)
        await self._gate(name, pod)
        kind = self._fate(name)
        if kind == "refused":
            await context.abort(grpc.StatusCode.UNKNOWN, "injected: refused")
        if kind == "unavailable":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "injected: nobody there")
        if kind == "late":
            await asyncio.sleep(self._dice.uniform(0, _LATE))
        if kind == "malformed":
            return MALFORMED
        answer = await self._asked_of_runtime(name, pod, call, request)
        for field in ("pod_sandbox_id", "container_id"):
            if pod and hasattr(answer, field):
                self._pods[getattr(answer, field)] = pod
        if kind == "answer lost":
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "injected: it was done, and the answer is lost")
        return answer

    async def _asked_of_runtime(self, name: str, pod: str, call: Any, request: Any) -> Any:
        if self.on_moment is None:
            return await call(request)
        await self.on_moment(name, pod, Moment.ASKED)
        under_way = call(request)
        try:
            await self.on_moment(name, pod, Moment.UNDER_WAY)
            answer = await under_way
            await self.on_moment(name, pod, Moment.DONE)
        finally:
            under_way.cancel()  # without effect on one that has ended
        task = asyncio.create_task(self._answered(name, pod))
        self._after.add(task)
        task.add_done_callback(self._after.discard)
        return answer

    async def _answered(self, name: str, pod: str) -> None:
        await asyncio.sleep(0.01)  # until the answer has been written
        if self.on_moment is not None:
            await self.on_moment(name, pod, Moment.ANSWERED)

    async def _gate(self, name: str, pod: str) -> None:
        gate = self._gates.get((name, pod))
        if gate is None:
            return
        self.waiting[name, pod] += 1
        try:
            await gate.wait()
        finally:
            self.waiting[name, pod] -= 1

    def _fate(self, name: str) -> str:
        if name in self._ways:
            self.faults[f"{name} {self._ways[name]}"] += 1
            return self._ways[name]
        if name in SPARED or self._dice.random() >= self.rate:
            return ""
        kind = self._dice.choice(("refused", "unavailable", "late", "answer lost"))
        self.faults[f"{name} {kind}"] += 1
        return kind

    async def _bent(self, name: str, messages: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for message in messages:
            if self._dice.random() < self.rate:
                kind = self._dice.choice(("lost", "doubled", "late"))
                self.faults[f"{name} {kind}"] += 1
                if kind == "lost":
                    continue
                if kind == "late":
                    await asyncio.sleep(self._dice.uniform(0, _LATE))
                else:
                    yield message
            yield message

    def _pod_of(self, request: Any) -> str:
        """The name of the pod that a request is about, "" where it does not say or is not known."""
        if isinstance(request, api_pb2.PullImageRequest):
            return str(request.image.image.rpartition("/")[2].partition(":")[0])
        for field in ("sandbox_config", "config"):
            config = getattr(request, field, None)
            if isinstance(config, api_pb2.PodSandboxConfig) and config.metadata.name:
                return str(config.metadata.name)
        for field in ("container_id", "pod_sandbox_id"):
            if getattr(request, field, ""):
                return self._pods.get(getattr(request, field), "")
        return ""


def _encoded(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())
