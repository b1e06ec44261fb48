"""Starts that are under way when the agent is killed or stops still finish: containerd would cancel them otherwise."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from cri_api.v1 import api_pb2, api_pb2_grpc

from agent.runtime.edge.cri import Cri
from agent.runtime.edge.starts import KeptStarts, sockets_with
from nodelib.tasks import cancel_and_wait
from tests.waiting import until

pb: Any = api_pb2

# The agent of these tests starts one container or sandbox, or ends or removes one: on the kept connection, at once
# while all its connections are being made ("young"), or with none that is kept. After a line on its standard input it
# stops without waiting for that call.
_AGENT = """
import asyncio, sys
from agent.runtime.edge.cri import Cri
from nodelib.tasks import cancel_and_wait

async def main(socket, way, what):
    cri, kept = Cri(socket), way != "plain"
    if kept:
        listing = asyncio.create_task(cri.list_sandboxes())
        keeping = asyncio.create_task(cri.keep_starts())
        await asyncio.sleep(0)
        while way == "kept" and cri._starts.stub is None:
            await asyncio.sleep(0.005)
    sandbox = {"metadata": {"name": "p", "uid": "u", "namespace": "n", "attempt": 0}}
    calls = {
        "container": lambda: cri.start_container("c"),
        "sandbox": lambda: cri.run_sandbox(sandbox),
        "end": lambda: cri.stop_sandbox("s"),
        "removal": lambda: cri.remove_sandbox("s"),
    }
    starting = asyncio.create_task(calls[what]())
    await asyncio.to_thread(sys.stdin.readline)
    await cancel_and_wait(starting)
    await cri.close()
    if kept:
        keeping.cancel()
        await asyncio.gather(listing, keeping, return_exceptions=True)

asyncio.run(main(*sys.argv[1:]))
"""


class _Runtime(api_pb2_grpc.RuntimeServiceServicer):  # type: ignore[misc]
    """Like containerd, it cancels the calls of a caller whose connection ends."""

    def __init__(self) -> None:
        self.begun, self.go_on, self.ends = asyncio.Event(), asyncio.Event(), list[str]()

    async def StartContainer(self, request: Any, context: Any) -> Any:
        await self._start()
        return pb.StartContainerResponse()

    async def RunPodSandbox(self, request: Any, context: Any) -> Any:
        await self._start()
        return pb.RunPodSandboxResponse(pod_sandbox_id="s")

    async def StopPodSandbox(self, request: Any, context: Any) -> Any:
        await self._start()
        return pb.StopPodSandboxResponse()

    async def RemovePodSandbox(self, request: Any, context: Any) -> Any:
        await self._start()
        return pb.RemovePodSandboxResponse()

    async def _start(self) -> None:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        self.ends.append("started")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[tuple[_Runtime, str]]:
    """Its socket has another path than the one it was made with, as where the agent has a file tree of its own."""
    server, served, made = grpc.aio.server(), _Runtime(), tmp_path / "made"
    made.mkdir()
    api_pb2_grpc.add_RuntimeServiceServicer_to_server(served, server)
    server.add_insecure_port(f"unix:{made}/r.sock")
    await server.start()
    made.rename(tmp_path / "seen")
    yield served, f"{tmp_path}/seen/r.sock"
    await server.stop(None)


async def test_other_connections_that_are_made_meanwhile_do_not_delay_the_kept_one(
    runtime: tuple[_Runtime, str], caplog: pytest.LogCaptureFixture
) -> None:
    """An agent makes its other connections to the runtime at the same moment, when it starts and when that restarts."""
    caplog.set_level("DEBUG", "agent.runtime.edge.starts")
    starts, others = KeptStarts(f"unix:{runtime[1]}", []), list[grpc.aio.Channel]()

    async def make_more() -> None:
        for _ in range(20):
            others.append(
                grpc.aio.insecure_channel(f"unix:{runtime[1]}", options=[("grpc.use_local_subchannel_pool", 1)])
            )
            await others[-1].channel_ready()

    keeping, more = asyncio.create_task(starts.run()), asyncio.create_task(make_more())
    try:
        await until(lambda: starts.stub is not None)
        assert caplog.messages == []
    finally:
        more.cancel()
        await starts.close()
        keeping.cancel()
        await asyncio.gather(more, keeping, return_exceptions=True)
        for one in others:
            await one.close()


@pytest.mark.parametrize("what", ["container", "sandbox", "end", "removal"])
@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize(("way", "end"), [("kept", "started"), ("young", "started"), ("plain", "cancelled")])
async def test_a_start_or_end_outlives_the_agent_that_asked_for_it(
    runtime: tuple[_Runtime, str], way: str, end: str, how: str, what: str
) -> None:
    served, path = runtime
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    agent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _AGENT, path, way, what, env=environment, stdin=asyncio.subprocess.PIPE
    )
    try:
        await asyncio.wait_for(served.begun.wait(), 30)
        if how == "stopped":
            await asyncio.wait_for(agent.communicate(b"\n"), 30)
            assert agent.returncode == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            agent.kill()
        await agent.wait()
    if end == "cancelled":
        await until(lambda: served.ends)
    served.go_on.set()
    await until(lambda: served.ends)
    assert served.ends == [end]


async def test_without_a_runtime_it_is_tried_again_and_ends_when_cancelled(tmp_path: Path) -> None:
    starts = KeptStarts(f"unix:{tmp_path}/r.sock", [])
    keeping = asyncio.create_task(starts.run())
    await asyncio.sleep(0.1)
    assert starts.stub is None and not keeping.done()
    server = grpc.aio.server()
    server.add_insecure_port(f"unix:{tmp_path}/r.sock")
    await server.start()
    await until(lambda: starts.stub is not None)
    await cancel_and_wait(keeping)
    assert keeping.cancelled() and starts.stub is None
    await starts.close()
    await server.stop(None)


async def test_a_start_waits_for_the_connection_after_a_restart_of_the_runtime(tmp_path: Path) -> None:
    starts, path = KeptStarts(f"unix:{tmp_path}/r.sock", []), f"unix:{tmp_path}/r.sock"
    assert await starts.ready() is None, "nobody keeps one: nothing is waited for"
    server = grpc.aio.server()
    server.add_insecure_port(path)
    await server.start()
    keeping = asyncio.create_task(starts.run())
    await asyncio.sleep(0)
    first = await starts.ready()
    assert first is not None
    await server.stop(None)
    await until(lambda: starts.stub is not first)
    waiting = asyncio.create_task(starts.ready())
    server = grpc.aio.server()
    server.add_insecure_port(path)
    await server.start()
    assert await waiting not in (None, first)
    await cancel_and_wait(keeping)
    await starts.close()
    await server.stop(None)


async def test_a_connection_that_cannot_be_kept_is_reported_once_and_not_waited_for(
    runtime: tuple[_Runtime, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")  # no sh
    starts = KeptStarts(f"unix:{runtime[1]}", [])
    keeping = asyncio.create_task(starts.run())
    await asyncio.sleep(0)
    assert await starts.ready() is None
    await until(lambda: next(starts._tries) > 3)
    assert [one.message for one in caplog.records if "may be restarted" in one.message] == caplog.messages
    assert len(caplog.messages) == 1
    await cancel_and_wait(keeping)
    await starts.close()


async def test_the_end_may_come_while_the_runtime_is_being_dialled(tmp_path: Path) -> None:
    """At a stop connections are closed before tasks are cancelled."""
    (tmp_path / "mute.sock").touch()  # there, and nobody listens
    cri = Cri(f"{tmp_path}/mute.sock")
    keeping = asyncio.create_task(cri.keep_starts())
    await until(lambda: cri._starts._channel is not None)
    await cri.close()
    await asyncio.wait({keeping}, timeout=0.2)
    assert not keeping.done()
    await cancel_and_wait(keeping)


def test_connections_are_distinguished_by_their_buffers() -> None:
    with contextlib.ExitStack() as stack:
        pairs = [socket.socketpair() for _ in range(3)]
        for end in itertools.chain(*pairs):
            stack.enter_context(end)
        pairs[0][1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 70_001)
        pairs[1][1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 70_003)
        found = sockets_with(70_001)
        assert [number for number, _ in found] == [pairs[0][1].fileno()]
