"""The worker of the suite cyclonus, against real sockets. `conformance --suite cyclonus` builds it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.binaries.model import TABLE
from controlplane.binaries.work import key_of
from controlplane.cluster.edge.roots import cache_root

_WORKER = Path(cache_root(), "bin", key_of(TABLE["cyclonus-worker"]), "cyclonus-worker")
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not _WORKER.exists(), reason="it is not built yet: `conformance --suite cyclonus` does it"),
]
_HERE = "127.0.0.1"


@contextlib.contextmanager
def open_port(kind: socket.SocketKind) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind((_HERE, 0))
        yield found


def answer_each(server: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed at the end
        while True:
            asked, client = server.recvfrom(64)
            server.sendto(b"pod-a" if asked == b"hostname\n" else b"", client)


def work_off(*requests: tuple[str, str, int]) -> list[str]:
    """What the worker says of each (protocol, host, port): "" for who was reached."""
    listed = [
        {"Key": str(number), "Protocol": protocol, "Host": host, "Port": port}
        for number, (protocol, host, port) in enumerate(requests)
    ]
    batch = {"Namespace": "x", "Pod": "a", "Container": "cont-80-tcp", "Requests": listed}
    done = subprocess.run([str(_WORKER), "--jobs", json.dumps(batch)], capture_output=True, check=True, timeout=30)
    results: list[dict[str, Any]] = json.loads(done.stdout)
    assert [one["Request"] for one in results] == listed
    return [one["Error"] for one in results]


def test_who_listens_and_answers_is_reached_and_nobody_else() -> None:
    kinds = (socket.SOCK_STREAM, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_DGRAM)
    with contextlib.ExitStack() as stack:
        tcp, closed, udp, silent = (stack.enter_context(open_port(kind)) for kind in kinds)
        tcp.listen()
        threading.Thread(target=answer_each, args=(udp,), daemon=True).start()
        listening, refusing, answering, mute = (one.getsockname()[1] for one in (tcp, closed, udp, silent))
        reached_tcp, refused, reached_udp, lost, unknown = work_off(
            ("TCP", "localhost", listening),
            ("TCP", _HERE, refusing),
            ("UDP", "localhost", answering),
            ("UDP", _HERE, mute),
            ("TCP", "", listening),
        )
    assert (reached_tcp, reached_udp) == ("", "")
    assert refused.endswith("connection refused")
    assert lost.endswith("i/o timeout")
    assert unknown.startswith("DNS: ")


def test_all_are_asked_at_once() -> None:
    """36 that are lost take two seconds (one, and a second try), not 36 times as long."""
    with open_port(socket.SOCK_DGRAM) as silent:
        began = time.monotonic()
        said = work_off(*[("UDP", _HERE, silent.getsockname()[1])] * 36)
        took = time.monotonic() - began
    assert all(said)
    assert took < 20


def test_a_list_that_cannot_be_read_is_an_error() -> None:
    done = subprocess.run([str(_WORKER), "--jobs", "{"], capture_output=True, check=False, timeout=30)
    assert done.returncode == 1 and b"cannot read --jobs" in done.stderr and not done.stdout
