"""What systemd hears, on a real socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodelib.daemons.sdnotify import Notifier
from tests.fakes.clock import FakeClock


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(5)
        yield listener


def test_ready_and_stopping(heard: socket.socket) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": heard.getsockname()})
    notifier.ready("serving")
    notifier.stopping()
    assert [heard.recv(100), heard.recv(100)] == [b"READY=1\nSTATUS=serving", b"STOPPING=1"]


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind("\0nodewright-test-notify")
        listener.settimeout(5)
        Notifier({"NOTIFY_SOCKET": "@nodewright-test-notify"}).ready()
        assert listener.recv(100) == b"READY=1"


async def test_a_sign_of_life_only_while_all_is_well(heard: socket.socket) -> None:
    heard.setblocking(False)
    clock, problem = FakeClock(), [""]
    notifier = Notifier({"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "10000000"})
    assert notifier.interval == 5.0
    task = asyncio.create_task(notifier.watch(lambda: problem[0], clock))
    await clock.advance(5)
    problem[0] = "the runtime is silent"
    await clock.advance(5)
    problem[0] = ""
    await clock.advance(5)
    task.cancel()
    received = []
    while True:
        try:
            received.append(heard.recv(200))
        except BlockingIOError:
            break
    assert received[0] == b"WATCHDOG=1" and b"STATUS=the runtime is silent" in received
    assert received[-1] == b"WATCHDOG=1\nSTATUS=well again"


@pytest.mark.parametrize(
    "env",
    [{}, {"WATCHDOG_USEC": "1000"}, {"NOTIFY_SOCKET": "/s", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}],
    ids=["no systemd", "no socket", "another process is watched"],
)
async def test_nobody_listens(env: dict[str, str]) -> None:
    notifier = Notifier(env)
    assert notifier.interval == 0
    await notifier.watch(lambda: "", FakeClock())  # ends at once
    if not env.get("NOTIFY_SOCKET"):
        notifier.ready()
