"""Clients that nobody knows, against the server in a process of its own: what they cost it, and whom they keep out.

Each attack goes on until its numbers are taken, and all the while a client with rights is answered. What measures
nothing of the process shares one of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.agent.server.hostile_clients import ATTACKS, HEAD
from tests.waiting import until

CLIENTS = 200
MOST = 64 << 20  # bytes more than before
ATTACK = 3.0  # seconds: two hundred clients each come three times
HASTE = 4.0  # seconds for a head or a handshake
PROJECT = Path(__file__).parents[4]
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Target:
    """The server's process, its port, and what it says of itself."""

    process: subprocess.Popen[bytes]
    port: int
    folder: Path

    def memory(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * PAGE

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def report(self) -> dict[str, float]:
        found: dict[str, float] = json.loads((self.folder / "report").read_text())
        return found

    async def ask_as_clients_do(self) -> int:
        """With rights, and again where the connection was refused: who was slow to speak is taken for a stranger."""
        for _ in range(4):
            with contextlib.suppress(ConnectionError):
                return await self.ask("/pods", True)
        return await self.ask("/pods", True)

    async def newest_report(self) -> dict[str, float]:
        """A report that was written after this call."""
        since = time.time_ns()
        await until(lambda: (self.folder / "report").stat().st_mtime_ns > since, seconds=60)
        return self.report()

    def __post_init__(self) -> None:
        self._stranger = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        self._known = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        self._known.load_cert_chain(self.folder / "admin.crt", self.folder / "admin.key")

    async def connect(self, known: bool = False) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        tls = self._known if known else self._stranger
        return await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=tls, server_hostname="localhost", ssl_shutdown_timeout=1
        )

    async def ask(self, path: str, known: bool = False, *headers: str) -> int:
        """The status of one answer over a connection of its own."""
        reader, writer = await self.connect(known)
        lines = "".join(f"{header}\r\n" for header in headers)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{lines}\r\n".encode())
        answer = await reader.read()
        writer.close()
        if not answer:
            raise ConnectionResetError("closed without an answer")
        return int(answer.split(b" ", 2)[1])


@contextlib.contextmanager
def served(folder: Path, seconds: float) -> Iterator[Target]:
    line = [sys.executable, "-m", "tests.unit.agent.server.served_node", str(folder), str(seconds)]
    env = {**os.environ, "PYTHONPATH": str(PROJECT)}
    with subprocess.Popen(line, stdout=subprocess.PIPE, cwd=PROJECT, env=env) as process:
        assert process.stdout is not None
        try:
            yield Target(process, int(process.stdout.readline()), folder)
            assert process.poll() is None, "the server has died"
        finally:
            process.kill()


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Target]:
    with served(tmp_path, 10) as found:
        await until((tmp_path / "report").exists, seconds=60)
        assert await found.ask("/pods", True) == 200
        yield found


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Head and handshake may take HASTE."""
    with served(tmp_path_factory.mktemp("hasty"), HASTE) as found:
        yield found


@contextlib.asynccontextmanager
async def under(target: Target, attack: str) -> AsyncIterator[None]:
    """Two hundred clients in a process of their own, which is nicer than the server."""
    line = [sys.executable, "-m", "tests.unit.agent.server.hostile_clients"]
    process = await asyncio.create_subprocess_exec(
        *line, attack, str(target.port), str(target.folder / "ca.crt"), str(CLIENTS), cwd=PROJECT,
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert await asyncio.wait_for(process.stdout.readline(), 60) == b"attacking\n"
        yield
        assert process.returncode is None, "the attack has ended by itself"
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.mark.parametrize("attack", ATTACKS)
async def test_strangers_cost_little_and_keep_nobody_out(target: Target, attack: str) -> None:
    before, peak, answered = target.memory(), 0, 0
    async with under(target, attack):
        deadline = time.monotonic() + ATTACK
        while time.monotonic() < deadline or answered < 3:
            assert await asyncio.wait_for(target.ask_as_clients_do(), 60) == 200
            answered += 1
            peak = max(peak, target.memory())
            await asyncio.sleep(0.1)
        assert target.descriptors() < 150, "strangers are limited"
    assert peak - before < MOST, f"{(peak - before) >> 20} MiB more"
    assert target.report()["stall"] < 5, "the Lease would be late"


async def test_connections_that_never_shake_hands(hasty: Target) -> None:
    assert await hasty.ask("/pods", True) == 200
    with contextlib.ExitStack() as stack:
        for _ in range(600):
            _, writer = await asyncio.open_connection("127.0.0.1", hasty.port)
            stack.callback(writer.transport.abort)
        assert await asyncio.wait_for(hasty.ask("/pods", True), 30) == 200
        assert hasty.descriptors() < 150
        await until(lambda: hasty.descriptors() < 30)


async def test_a_head_has_its_time(hasty: Target) -> None:
    async def seconds(sent: bytes) -> float:
        reader, writer = await hasty.connect()
        writer.write(sent)
        started = time.monotonic()
        with contextlib.suppress(ConnectionError):
            await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return time.monotonic() - started

    each = {"nothing": b"", "half a head": HEAD, "lines": b"\r\n\r\n\r\n", "a byte": b"G"}
    took = dict(zip(each, await asyncio.gather(*map(seconds, each.values())), strict=True))
    assert all(1 < one < 15 for one in took.values()), took


async def test_the_second_head_has_its_time_too(hasty: Target) -> None:
    reader, writer = await hasty.connect(known=True)
    for _ in range(3):
        writer.write(HEAD + b"\r\n")
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = next(line for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))
    writer.write(HEAD)
    started = time.monotonic()
    with contextlib.suppress(ConnectionError):
        await asyncio.wait_for(reader.read(), 20)
    assert 1 < time.monotonic() - started < 15
    writer.close()


@pytest.mark.parametrize("known", [False, True], ids=["stranger", "known"])
async def test_a_head_has_its_size(hasty: Target, known: bool) -> None:
    for size, status in ((900_000, 200 if known else 401), (1_200_000, 431)):
        many = [f"X-{number}: {'a' * (size // 20)}" for number in range(20)]
        with contextlib.suppress(ConnectionError):
            assert await hasty.ask("/pods", known, *many) == status


async def test_requests_that_arrive_at_once_are_all_answered(hasty: Target) -> None:
    reader, writer = await hasty.connect(known=True)
    writer.write((HEAD + b"\r\n") * 20)
    for _ in range(20):
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
        assert answer.startswith(b"HTTP/1.1 200")
        length = next(line for line in answer.split(b"\r\n") if line.lower().startswith(b"content-length"))
        await reader.readexactly(int(length.split(b":")[1]))
    writer.close()


async def test_a_wrong_token_is_reviewed_once_and_few_at_a_time(target: Target) -> None:
    for _ in range(30):
        assert await target.ask("/pods", False, "Authorization: Bearer wrong") == 401
    assert (await target.newest_report())["reviews"] == 1
    tokens = [f"Authorization: Bearer wrong-{number}" for number in range(80)]
    asked = await asyncio.gather(*(target.ask("/pods", False, token) for token in tokens))
    assert set(asked) == {401}
    report = await target.newest_report()
    assert report["reviews"] == 81 and report["most"] <= 16
