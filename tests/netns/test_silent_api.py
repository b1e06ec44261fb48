"""An API server whose packets are lost, without FIN or RST: the client connects again within seconds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from tests.cluster.command_line import PROJECT

pytestmark = [pytest.mark.netns, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")]
SERVER, CLIENT = f"silent-s-{os.getpid()}", f"silent-c-{os.getpid()}"
HERE, THERE = "10.98.0.1", "10.98.0.2"
Start = Callable[[str, str], "subprocess.Popen[str]"]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=20)


@pytest.fixture
def start() -> Iterator[Start]:
    """Two namespaces with a link between, and a way to start either side in its own."""
    ip("netns", "add", SERVER)
    ip("netns", "add", CLIENT)
    ip("-n", SERVER, "link", "add", "wire", "type", "veth", "peer", "name", "wire", "netns", CLIENT)
    for space, address in ((SERVER, HERE), (CLIENT, THERE)):
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "wire")
        ip("-n", space, "link", "set", "wire", "up")
    running: list[subprocess.Popen[str]] = []

    def begin(space: str, verb: str) -> subprocess.Popen[str]:
        line = ["nsenter", f"--net=/run/netns/{space}", sys.executable, "-m", "tests.netns.silent_watch", verb, HERE]
        running.append(subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd=PROJECT))
        return running[-1]

    yield begin
    for process in running:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()
    ip("netns", "del", CLIENT)
    ip("netns", "del", SERVER)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def nft(text: str) -> None:
    subprocess.run(
        ["nsenter", f"--net=/run/netns/{SERVER}", "nft", "-f", "-"], input=text, text=True, check=True, timeout=20
    )


def test_a_watch_on_a_server_that_is_cut_off_ends_within_five_seconds(start: Start) -> None:
    assert line(start(SERVER, "serve")) == "serving"
    client = start(CLIENT, "follow")
    assert line(client) == "event ADDED"
    nft("table inet cut { chain input { type filter hook input priority 0; policy drop; }; }")
    cut = time.monotonic()
    lost = line(client)
    took = time.monotonic() - cut
    assert lost.startswith("lost ") and "Check that the API server is running" in lost
    assert took < 8, f"{took:.1f} s"  # five by the kernel's timers; more on a machine that is busy
    nft("delete table inet cut")
    seen = ""
    while not seen.startswith("event"):
        seen = line(client)
    assert time.monotonic() - cut < 30
