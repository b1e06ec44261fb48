"""The forms of the log, and how much of each module is in it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from nodelib.daemons import log
from nodelib.daemons.log import LogOptions

Set = Callable[[LogOptions], io.StringIO]


@pytest.fixture
def set_up(monkeypatch: pytest.MonkeyPatch) -> Iterator[Set]:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    level = root.level

    def made(options: LogOptions) -> io.StringIO:
        text = io.StringIO()
        monkeypatch.setattr(sys, "stderr", text)
        log.setup(options, "agent")
        return text

    yield made
    root.setLevel(level)


def record(module: str, level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord(f"agent.{module}", level, f"/x/runtime/{module}.py", 7, text, (), None)


def said(written: io.StringIO, *records: logging.LogRecord) -> list[str]:
    for one in records:
        if logging.getLogger().isEnabledFor(one.levelno):
            logging.getLogger().handle(one)
    return [line.rsplit(": ", 1)[-1] for line in written.getvalue().splitlines()]


def test_a_pattern_of_vmodule_shows_more_of_its_modules_only(set_up: Set) -> None:
    written = set_up(LogOptions(vmodule=(("cri", 1), ("im*", 5), ("*", 4), ("cri", 9))))
    debug = [record(module, logging.DEBUG, module) for module in ("cri", "images", "pods")]
    # klog takes the first pattern that matches.
    assert said(written, *debug, record("cri", logging.INFO, "info")) == ["images", "pods", "info"]


def test_the_verbosity_is_changed_while_it_runs(set_up: Set) -> None:
    written = set_up(LogOptions(vmodule=(("images", 4),)))
    one, other = record("cri", logging.DEBUG, "cri"), record("images", logging.DEBUG, "images")
    assert said(written, one, other) == ["images"]
    log.set_verbosity(4)
    assert said(written, one) == ["images", "cri"]
    log.set_verbosity(0)
    assert said(written, one, other) == ["images", "cri", "images"]


def test_json_has_upstreams_keys_in_one_line(set_up: Set) -> None:
    written = set_up(LogOptions(form="json"))
    logger = logging.getLogger("agent.x")
    logger.info("pod %s:\n%s", "web", "\x1b[2J\udc80")
    try:
        raise ValueError("bad" * (1 << 18))
    except ValueError:
        logger.exception("failed")
    info, error = (json.loads(line) for line in written.getvalue().splitlines())
    assert (info["msg"], info["v"], info["logger"]) == ("pod web:\n\\x1b[2J\\udc80", 0, "agent.x")
    assert info["caller"].startswith("daemons/test_log.py:") and 1.7e12 < info["ts"] < 1e13
    assert "v" not in error and error["msg"] == "failed" and error["err"].startswith("ValueError(")
    assert "Traceback" in error["stacktrace"] and len(written.getvalue()) < 64 * 1024


def test_text_is_the_default(set_up: Set) -> None:
    written = set_up(LogOptions())
    logging.getLogger("agent.x").info("hello")
    assert written.getvalue().endswith(" I agent agent.x: hello\n")


async def test_an_answer_that_is_no_message_brings_no_traceback_of_a_library(set_up: Set, tmp_path: Path) -> None:
    """A broken runtime would write one for each call; whoever asked names the object and the step."""
    written = set_up(LogOptions())

    async def garbage(request: bytes, context: object) -> bytes:
        return b"\xff\xff"

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(garbage)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("s", {"M": handler}),))
    server.add_insecure_port(f"unix:{tmp_path}/s")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/s") as channel:
            call = channel.unary_unary("/s/M", response_deserializer=Timestamp.FromString)
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert await call(b"") is None
    finally:
        await server.stop(None)
    assert written.getvalue() == ""
