"""Calls of the CRI over a real connection: what the runtime is told of the trace, and the span of each call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from cri_api.v1 import api_pb2, api_pb2_grpc

from agent.common.model.errors import CriError
from agent.runtime.edge.cri import Cri
from agent.runtime.edge.traced_calls import TracedChannel
from nodelib.tasks import cancel_and_wait
from nodelib.traces.current import working_for
from nodelib.traces.model import Span, SpanContext, SpanKind
from tests.waiting import until

pb: Any = api_pb2
STEP = SpanContext(b"t" * 16, b"s" * 8)
UNDER_WAY = Span(STEP, "step", 0.0, 0.0)


class Runtime(api_pb2_grpc.RuntimeServiceServicer):  # type: ignore[misc]
    def __init__(self) -> None:
        self.received: list[str] = []
        self.cancelled = False

    def _note(self, context: Any) -> None:
        self.received += [value for key, value in context.invocation_metadata() if key == "traceparent"]

    async def Version(self, request: Any, context: Any) -> Any:
        self._note(context)
        return pb.VersionResponse(runtime_name="fake")

    async def StartContainer(self, request: Any, context: Any) -> Any:
        self._note(context)
        if request.container_id == "bad":
            await context.abort(grpc.StatusCode.UNKNOWN, "exec format error")
        if request.container_id == "slow":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled = True
                raise
        return pb.StartContainerResponse()


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[tuple[Cri, Runtime, list[Span]]]:
    runtime, spans = Runtime(), list[Span]()
    server = grpc.aio.server()
    api_pb2_grpc.add_RuntimeServiceServicer_to_server(runtime, server)
    server.add_insecure_port(f"unix:{tmp_path}/r.sock")
    await server.start()
    cri = Cri(f"{tmp_path}/r.sock", traced=partial(TracedChannel, sink=lambda make: spans.append(make())))
    yield cri, runtime, spans
    await cri.close()
    await server.stop(None)


World = tuple[Cri, Runtime, list[Span]]


async def test_the_runtime_is_told_whose_child_its_span_is(world: World) -> None:
    cri, runtime, spans = world
    with working_for(UNDER_WAY):
        await cri.version()
    (span,) = spans
    assert (span.name, span.kind, span.parent) == ("runtime.v1.RuntimeService/Version", SpanKind.CLIENT, STEP.span)
    assert span.context.trace == STEP.trace and span.seconds > 0 and not span.error
    assert runtime.received == [f"00-{STEP.trace.hex()}-{span.context.span.hex()}-01"]


async def test_a_call_that_belongs_to_no_trace_says_nothing(world: World) -> None:
    cri, runtime, spans = world
    await cri.version()
    assert (runtime.received, spans) == ([], [])


async def test_a_failed_call_is_the_same_error_and_a_failed_span(world: World) -> None:
    cri, _, spans = world
    with working_for(UNDER_WAY), pytest.raises(CriError, match="exec format error") as caught:
        await cri.start_container("bad")
    assert caught.value.code == "UNKNOWN"
    assert [one.error for one in spans] == ["UNKNOWN: exec format error"]


async def test_starts_over_the_connection_that_outlives_the_agent_are_traced_too(world: World) -> None:
    cri, runtime, spans = world
    keeping = asyncio.create_task(cri.keep_starts())
    await until(lambda: cri._starts.stub is not None)
    with working_for(UNDER_WAY):
        await cri.start_container("good")
    await cancel_and_wait(keeping)
    assert len(runtime.received) == 1 and [one.name for one in spans] == ["runtime.v1.RuntimeService/StartContainer"]


async def test_a_cancelled_call_is_cancelled_at_the_runtime_and_a_failed_span(world: World) -> None:
    cri, runtime, spans = world
    with working_for(UNDER_WAY):
        calling = asyncio.create_task(cri.start_container("slow"))
    await until(lambda: runtime.received != [])
    await cancel_and_wait(calling)
    assert [one.error for one in spans] == ["CANCELLED"]
    await until(lambda: runtime.cancelled)
