"""What the TLS handshakes of probes and hooks may take of the event loop."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agent.common import turn_waits
from agent.common.work.handshakes import Handshakes, of_namespace
from agent.probes.edge import ProbeIo
from agent.probes.model import HttpRequest, Verdict
from agent.server.edge.certificates import ensure_self_signed
from nodelib.tasks import cancel_and_wait
from tests.waiting import until

_LONG = 0.02  # seconds of a handshake


class Spends:
    """Stands for the context of connections whose handshakes take long."""

    spent = 0.0


async def connect(handshakes: Handshakes, context: Any, namespace: str, order: list[str]) -> None:
    with of_namespace(namespace):
        async with handshakes.turn():
            time.sleep(_LONG)  # as OpenSSL does, the loop stands still meanwhile
            context.spent += _LONG
            order.append(namespace)


async def test_a_namespace_has_a_quarter_of_the_time_and_nobody_else_waits_for_it() -> None:
    """Probes of one pod, led from one handshake of 25 ms to the next, held the loop for seconds."""
    context: Any = Spends()
    handshakes, order = Handshakes(), list[str]()
    handshakes.turns_for(context)
    loop = asyncio.get_running_loop()
    began = loop.time()
    many = [asyncio.create_task(connect(handshakes, context, "many", order)) for _ in range(60)]
    await asyncio.sleep(0.3)
    for _ in range(3):
        asked, before = loop.time(), order.count("many")
        await connect(handshakes, context, "other", order)
        assert order.count("many") - before <= 2 or loop.time() - asked < 0.2, "it waited for others"
        await asyncio.sleep(0.1)
    took = loop.time() - began
    assert (order.count("many") - 5) * _LONG <= 0.3 * took
    await cancel_and_wait(*many)


async def test_what_is_waited_for_a_turn_does_not_count(tmp_path: Path) -> None:
    """Else whoever has many would have the probes of others fail, and their containers killed."""
    cert, key = ensure_self_signed(str(tmp_path), ("n",), ())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    @asynccontextmanager
    async def late() -> AsyncIterator[None]:
        with turn_waits.waiting():
            await asyncio.sleep(2.5)
        yield

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    unused: Any = None
    io = ProbeIo(unused, turns=lambda context: late)
    port = server.sockets[0].getsockname()[1]
    found = await io.run(HttpRequest("https", "127.0.0.1", port, "/", ()), "c", 1.0)
    assert found.verdict is Verdict.SUCCESS, found.output
    await io.close()
    server.close()


async def test_one_after_a_rest_waits_for_nothing() -> None:
    context: Any = Spends()
    handshakes, loop = Handshakes(), asyncio.get_running_loop()
    handshakes.turns_for(context)
    async with handshakes.turn():
        context.spent += _LONG
    began = loop.time()
    async with handshakes.turn():
        assert loop.time() - began > _LONG, "it waits for the rest after a long one"
    began = loop.time()
    async with handshakes.turn():
        assert loop.time() - began < _LONG, "nobody has spent anything since"


async def test_many_namespaces_have_half_of_the_time() -> None:
    context: Any = Spends()
    handshakes, order, loop = Handshakes(), list[str](), asyncio.get_running_loop()
    handshakes.turns_for(context)
    began = loop.time()
    many = [asyncio.create_task(connect(handshakes, context, f"ns-{number % 8}", order)) for number in range(400)]
    await until(lambda: len(set(order)) == 8 and loop.time() - began >= 1.0, 60)
    spent, took = len(order) * _LONG, loop.time() - began
    await cancel_and_wait(*many)
    assert 0.2 * took < spent < 0.55 * took + 8 * _LONG, "all together would have the whole loop"


async def test_a_server_that_is_silent_does_not_keep_its_namespace_waiting() -> None:
    """A rollout that mends pods which accept and say nothing must not wait for them."""
    handshakes, loop = Handshakes(), asyncio.get_running_loop()

    async def silent() -> None:
        async with handshakes.turn():
            await asyncio.sleep(60)

    hung = [asyncio.create_task(silent()) for _ in range(3)]
    await asyncio.sleep(0)
    began = loop.time()
    async with handshakes.turn():
        assert loop.time() - began < 0.2
    await cancel_and_wait(*hung)


async def test_accounts_of_namespaces_are_few_and_those_in_use_are_kept() -> None:
    context: Any = Spends()
    handshakes = Handshakes()
    handshakes.turns_for(context)
    async with handshakes.turn():
        mine = handshakes._namespaces[""]
        for number in range(600):
            with of_namespace(f"ns-{number}"):
                async with handshakes.turn():
                    pass
        assert len(handshakes._namespaces) <= 257 and handshakes._namespaces[""] is mine


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_probe_that_is_led_to_https_takes_its_turns(tmp_path: Path, scheme: str) -> None:
    cert, key = ensure_self_signed(str(tmp_path), ("n",), ())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    ports: dict[str, int] = {}

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        there = b"Location: https://127.0.0.1:%d/" % ports["https"]
        writer.write(b"HTTP/1.1 302 Found\r\n%s\r\nContent-Length: 0\r\n\r\n" % there)
        writer.close()

    servers = [await asyncio.start_server(lead, "127.0.0.1", 0, ssl=one) for one in (None, tls)]
    ports |= {name: one.sockets[0].getsockname()[1] for name, one in zip(("http", "https"), servers, strict=True)}
    unused: Any = None
    handshakes = Handshakes()
    io = ProbeIo(unused, turns=handshakes.turns_for)
    turns: list[str] = []
    handshakes._charge = turns.append  # type: ignore[method-assign, assignment]
    found = await io.run(HttpRequest(scheme, "127.0.0.1", ports[scheme], "/", ()), "c", 20.0)
    assert found.verdict is Verdict.FAILURE and "stopped after 10 redirects" in found.output
    assert len(turns) == (10 if scheme == "https" else 9)
    await io.close()
    for one in servers:
        one.close()
