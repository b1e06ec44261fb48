"""A node without a free descriptor must not restart containers because its probes cannot open a socket."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator

import pytest

from agent.probes.edge import ProbeIo
from agent.probes.model import GrpcRequest, HttpRequest, ProbeRequest, TcpRequest, Verdict
from tests.fakes.clock import FakeClock
from tests.fakes.fake_cri import FakeCri


@contextlib.contextmanager
def no_descriptor() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    holes = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                holes.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for handle in holes:
            os.close(handle)


REQUESTS = {
    "http": HttpRequest("http", "127.0.0.1", 1, "/", ()),
    "tcp": TcpRequest("127.0.0.1", 1),
    "grpc": GrpcRequest("127.0.0.1", 1, ""),
}


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
async def test_a_probe_without_a_socket_says_nothing_about_the_container(request_: ProbeRequest) -> None:
    probes = ProbeIo(FakeCri(FakeClock()))
    try:
        assert (await probes.run(request_, "c1", 5)).verdict is Verdict.FAILURE  # nobody listens there
        with no_descriptor():
            outcome = await probes.run(request_, "c1", 5)
        assert outcome.verdict is Verdict.ERROR
        assert "Too many open files" in outcome.output
    finally:
        await probes.close()
