"""/logs/?query= over HTTP, with a program in place of journalctl that prints how it was called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import aiohttp
import pytest

from agent.server.plan import node_logs as node_log_plan
from agent.server.plan.node_logs import LogQuery
from agent.server.work import node_logs
from agent.server.work.responses import Refused
from nodelib.errors import Temporary
from tests.unit.agent.server.conftest import Bench

_JOURNAL = """#!/bin/sh
case "$1" in --field) echo kubelet.service; exit;; esac
for word in "$@"; do echo "<$word>"; done
"""


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    program = tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(_JOURNAL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    yield program


async def _start(bench: Bench, **change: object) -> None:
    settings = replace(bench.settings(mode="AlwaysAllow", anonymous=True), system_log_query=True)
    await bench.start(replace(settings, **change))  # type: ignore[arg-type]


async def test_a_service_of_the_journal(bench: Bench, journal: Path) -> None:
    await _start(bench)
    status, text = await bench.get("/logs/?query=kubelet&tailLines=3&boot=0&pattern=a%20b")
    assert status == 200
    assert text.splitlines()[-5:] == ["<--lines=3>", "<--unit=kubelet>", "<--grep=a b>", "<--boot>", "<0>"]


async def test_an_expression_that_takes_long_to_compile_holds_nobody_up(
    bench: Bench, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many large sets of characters take seconds, and the requests of one user come at once."""
    threads, at_once = list[threading.Thread](), 0

    def check(query: LogQuery) -> None:
        nonlocal at_once
        assert at_once == 0, "two at once"
        at_once += 1
        threads.append(threading.current_thread())
        original(query)
        at_once -= 1

    original = node_log_plan.check
    monkeypatch.setattr(node_log_plan, "check", check)
    await _start(bench)
    pattern = quote("[^\u0100-\uffff]" * 20)
    answers = await asyncio.gather(*(bench.get(f"/logs/?query=kubelet&pattern={pattern}") for _ in range(3)))
    assert [status for status, _ in answers] == [200] * 3
    assert len(threads) == 3 and threading.main_thread() not in threads


async def test_a_service_that_logs_to_a_file(bench: Bench, journal: Path) -> None:
    logs = bench.folder / "log"
    (logs / "web").mkdir()
    (logs / "web" / "web.log").write_text("from the file\n")
    await _start(bench)
    assert await bench.get("/logs/?query=web") == (200, "from the file\n")
    assert "\nlog not found for none\n" in (await bench.get("/logs/?query=web&query=none"))[1]
    status, text = await bench.get("/logs/?query=web&tailLines=3")
    assert (status, "options present and query resolved to log files for [web]" in text) == (200, True)


async def test_without_a_journal_there_are_files(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (bench.folder / "log" / "kubelet.log").write_text("here\n")
    await _start(bench)
    assert await bench.get("/logs/?query=kubelet") == (200, "here\n")


async def test_a_file(bench: Bench, journal: Path) -> None:
    logs = bench.folder / "log"
    (logs / "a.log").write_text("text")
    (logs / "out").symlink_to(bench.folder / "ca.crt")
    await _start(bench)
    assert await bench.get("/logs/?query=/a.log") == (200, "text")
    for path in ("/none.log", "/../ca.crt", "/out", "/"):
        assert (await bench.get(f"/logs/?query={path}"))[0] == 406, path
    assert await bench.get("/logs/a.log") == (200, "text")


async def test_refusals(bench: Bench, journal: Path) -> None:
    await _start(bench)
    assert (await bench.get("/logs/?query"))[0] == 400
    assert await bench.get("/logs/a.log?query=kubelet") == (406, "path not allowed in query mode\n")
    assert (await bench.get("/logs/?query=a;b"))[0] == 406
    assert (await bench.get("/logs/?query=kubelet", method="POST"))[0] == 405


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("sinceTime=0001-01-01T00:00:00%2B14:00", 400),
        ("untilTime=9999-12-31T23:59:59-14:00", 400),
        ("pattern=a%00b", 406),
    ],
)
async def test_what_no_command_line_can_say_is_refused(bench: Bench, journal: Path, words: str, status: int) -> None:
    """The answer had begun: the connection was cut, and the log had a traceback."""
    await _start(bench)
    found, text = await bench.get(f"/logs/?query=kubelet&{words}")
    assert found == status and "Invalid value" in text


@pytest.mark.parametrize("error", [ValueError("nobody thought of it"), Temporary("it is gone"), Refused(429, "later")])
async def test_an_answer_that_cannot_go_on_is_cut_off(
    bench: Bench, journal: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The error came as text in the middle of it, and the client waited for an end that never came."""

    async def content(_: object, query: LogQuery) -> AsyncGenerator[bytes, None]:
        yield b"the beginning"
        raise error

    monkeypatch.setattr(node_logs.NodeLogs, "_content", content)
    await _start(bench)
    with pytest.raises(aiohttp.ClientPayloadError):
        async with asyncio.timeout(20):
            await bench.get("/logs/?query=kubelet")


async def test_an_early_year_has_four_digits(bench: Bench, journal: Path) -> None:
    await _start(bench)
    _, text = await bench.get("/logs/?query=kubelet&sinceTime=0999-01-01T00:00:00Z")
    assert "<--since=0999-01-01 00:00:00 UTC>" in text


async def test_a_query_is_refused_unless_it_is_enabled(bench: Bench, journal: Path) -> None:
    await _start(bench, system_log_query=False)
    status, text = await bench.get("/logs/?query=kubelet")
    assert (status, "enableSystemLogQuery" in text) == (400, True)


@pytest.mark.parametrize(("accepted", "sent"), [("gzip", "gzip"), ("gzip, br", None)])
async def test_who_asks_for_gzip_gets_it(bench: Bench, journal: Path, accepted: str, sent: str | None) -> None:
    await _start(bench)
    headers = {"Accept-Encoding": accepted}
    url = bench.url("/logs/?query=kubelet")
    async with aiohttp.ClientSession() as session, session.get(url, ssl=bench.tls(), headers=headers) as answer:
        assert answer.headers.get("Content-Encoding") == sent
        assert "<--unit=kubelet>" in await answer.text()


async def test_a_journal_that_never_ends_is_cut_off(
    bench: Bench, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = bench.folder / "pid"
    journal.write_text(
        f'#!/bin/sh\ncase "$1" in --field) echo kubelet.service; exit;; esac\n'
        f"echo $$ > {mark}\nwhile :; do echo line; sleep 0.01; done\n"
    )
    monkeypatch.setattr(node_logs, "_LIMIT", 0.5)
    await _start(bench)
    status, text = await bench.get("/logs/?query=kubelet")
    assert (status, text.rstrip().rpartition("\n")[2]) == (200, "error: the query took longer than 0.5 s")
    assert not Path(f"/proc/{mark.read_text().strip()}").exists()
