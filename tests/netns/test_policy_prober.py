"""The program that measures policies by packets: it says when they begin and cease to pass, against the real kernel."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.bench.policy_peers import prober
from tests.netns.cni_world import Namespace

pytestmark = pytest.mark.netns

_HOST, _FIRST, _SECOND = "10.244.0.2", 80, 81
_DROP = "udp dport {} drop"
Where = tuple[str, int]


class Watched:
    """A client and the namespace that it sends to, whose rules refuse what `forbid` names."""

    def __init__(self) -> None:
        self.client, self.servers = Namespace(), Namespace()
        link = ("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(self.servers.pid))
        self.client.run(*link)
        for space, address in ((self.client, "10.244.0.1/24"), (self.servers, f"{_HOST}/24")):
            space.run("ip", "addr", "add", address, "dev", "eth0")
            space.run("ip", "link", "set", "eth0", "up")
        self.servers.run("nft", "add table ip t; add chain ip t c { type filter hook input priority 0; }")
        argv = (sys.executable, "-IS", str(Path(prober.__file__)), self.client.path, self.servers.path)
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._line() == b"READY\n"

    def forbid(self, *ports: int) -> None:
        rules = [f"add rule ip t c {_DROP.format(port)}" for port in ports]
        self.servers.run("nft", "; ".join(["flush chain ip t c", *rules]))

    def watch(self, closed: Sequence[Where], opened: Sequence[Where], limit: float) -> list[bool]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"closed": closed, "open": opened, "limit": limit}).encode() + b"\n")
        self._process.stdin.flush()
        found: list[bool] = json.loads(self._line())["before"]
        return found

    def times(self) -> list[float | None]:
        found: list[float | None] = json.loads(self._line())["times"]
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self.client.close()
        self.servers.close()

    def _line(self) -> bytes:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.close()


def test_it_says_when_the_last_packet_passed_and_when_the_first(watched: Watched) -> None:
    watched.forbid(_SECOND)
    assert watched.watch([(_HOST, _FIRST)], [(_HOST, _SECOND)], 60) == [True, False]
    began = time.monotonic()
    watched.forbid(_FIRST)
    ended = time.monotonic()
    last, first = watched.times()
    assert last is not None and first is not None
    assert last <= ended, "nothing that was sent later has passed"
    assert began <= first, "nothing that was sent earlier has passed"


def test_what_does_not_change_has_no_time(watched: Watched) -> None:
    watched.forbid(_SECOND)
    assert watched.watch([(_HOST, _FIRST)], [(_HOST, _SECOND)], 0.5) == [True, False]
    assert watched.times() == [None, None]


def test_it_says_what_passes_before(watched: Watched) -> None:
    watched.forbid(_FIRST)
    assert watched.watch([], [(_HOST, _FIRST), (_HOST, _SECOND)], 0) == [False, True]
    assert watched.times() == [None, None], "nothing was sent: the limit was 0"
