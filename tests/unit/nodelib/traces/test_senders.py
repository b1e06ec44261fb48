"""Spans over real connections to a collector that takes them, refuses them, or answers with something else."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from nodelib.errors import NodewrightError, Permanent, Temporary
from nodelib.json_values import Json
from nodelib.traces import otlp
from nodelib.traces.model import Span, SpanContext
from nodelib.traces.senders import GrpcSender, HttpSender, sender_for
from nodelib.traces.wire import EXPORT, trace_api
from tests.fakes.collector import collector

SPAN = Span(SpanContext(b"t" * 16, b"s" * 8), "CNI ADD", 1_700_000_000.0, 0.25, b"p" * 8, {"k8s.pod.name": "web-0"})
REQUEST = otlp.message({"service.name": "kubelet"}, [SPAN])


async def test_a_collector_takes_spans_over_grpc() -> None:
    async with collector() as there:
        sender = sender_for(there.endpoint)
        assert await sender.send([REQUEST]) == 0
        await sender.close()
    (span,) = there.spans
    assert (span["name"], span["trace_id"], span["parent_span_id"]) == ("CNI ADD", b"t" * 16, b"p" * 8)
    assert span["end_time_unix_nano"] - span["start_time_unix_nano"] == 250_000_000
    assert (span["attributes"], there.resources) == ({"k8s.pod.name": "web-0"}, [{"service.name": "kubelet"}])


async def test_many_spans_are_one_request_that_is_made_in_parts() -> None:
    turns: list[int] = []

    def parts() -> Iterator[Json]:
        for number in range(3):
            asyncio.get_running_loop().call_soon(turns.append, number)
            assert len(turns) == number, "others have a turn between two parts"
            yield otlp.message({"service.name": "kubelet"}, [SPAN._replace(name=f"span-{number}")] * 2)

    async with collector() as there:
        sender = sender_for(there.endpoint)
        assert await sender.send(parts()) == 0
        await sender.close()
    assert [span["name"] for span in there.spans] == ["span-0"] * 2 + ["span-1"] * 2 + ["span-2"] * 2
    assert there.resources == [{"service.name": "kubelet"}] * 3


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", Temporary),
        ("RESOURCE_EXHAUSTED", Temporary),
        ("UNIMPLEMENTED", Permanent),
        ("UNAUTHENTICATED", Permanent),
        ("INVALID_ARGUMENT", Permanent),
    ],
)
async def test_a_refusal_says_whether_to_try_again(code: str, kind: type[NodewrightError]) -> None:
    async with collector() as there:
        there.refuse, there.said = code, "words\x1b[2J" * 500
        sender = GrpcSender(there.endpoint)
        with pytest.raises(kind) as caught:
            await sender.send([REQUEST])
        await sender.close()
    assert type(caught.value) is kind
    assert code in str(caught.value) and len(str(caught.value)) < 600 and "\x1b" not in str(caught.value)


async def test_a_huge_answer_is_not_read_and_not_asked_for_again() -> None:
    async with collector() as there:
        there.answer = {"partial_success": {"rejected_spans": 1, "error_message": "x" * 5_000_000}}
        sender = GrpcSender(there.endpoint)
        with pytest.raises(Permanent, match="larger than max"):
            await sender.send([REQUEST])
        await sender.close()


@pytest.mark.parametrize("said", [-5, 2**62])
async def test_an_absurd_count_of_rejected_spans_does_no_harm(said: int) -> None:
    async with collector() as there:
        there.answer = {"partial_success": {"rejected_spans": said}}
        sender = GrpcSender(there.endpoint)
        assert await sender.send([REQUEST]) == max(0, said)
        await sender.close()


async def test_nobody_there_is_worth_another_try() -> None:
    sender = GrpcSender("127.0.0.1:1")
    with pytest.raises(Temporary, match="export spans"):
        await sender.send([REQUEST])
    await sender.close()


@asynccontextmanager
async def http_collector(handler: object) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/traces", handler)  # type: ignore[arg-type]
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"  # type: ignore[union-attr]
    finally:
        await runner.cleanup()


async def test_a_collector_takes_spans_over_http() -> None:
    bodies: list[tuple[str, bytes]] = []

    async def take(request: web.Request) -> web.Response:
        bodies.append((request.content_type, await request.read()))
        answer = trace_api().calls[EXPORT].response(partial_success={"rejected_spans": 1})
        return web.Response(body=answer.SerializeToString(), content_type="application/x-protobuf")

    async with http_collector(take) as endpoint:
        sender = sender_for(endpoint)
        assert isinstance(sender, HttpSender)
        assert await sender.send([REQUEST]) == 1
        await sender.close()
    ((kind, body),) = bodies
    assert kind == "application/x-protobuf"
    assert (
        trace_api().calls[EXPORT].request.FromString(body).resource_spans[0].scope_spans[0].spans[0].name == "CNI ADD"
    )


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (503, b"", Temporary),
        (429, b"", Temporary),
        (404, b"", Permanent),
        (302, b"", Permanent),
        (200, b"<html>" * 100_000, Permanent),
    ],
)
async def test_other_answers_over_http(status: int, body: bytes, kind: type[NodewrightError]) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=status, body=body, headers={"Location": "http://127.0.0.1:1/"})

    async with http_collector(answer) as endpoint:
        sender = HttpSender(endpoint)
        with pytest.raises(kind):
            await asyncio.wait_for(sender.send([REQUEST]), 5)
        await sender.close()
