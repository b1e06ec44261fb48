"""gRPC's threads rest while the agent calls the runtime (agent/__init__.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_PROJECT = Path(__file__).parents[4]
# The client is a process of its own: gRPC reads its settings once. It prints how often the threads of gRPC's event
# engine ran for 200 calls, which a server without methods answers at once.
_CLIENT = """
import asyncio, pathlib, sys
import agent
import grpc.aio

def turns():
    tasks = pathlib.Path("/proc/self/task").iterdir()
    engine = [task for task in tasks if (task / "comm").read_text().startswith("event_engine")]
    return sum(int((task / "schedstat").read_text().split()[2]) for task in engine)

async def main():
    async with grpc.aio.insecure_channel(sys.argv[1]) as channel:
        ask = channel.unary_unary("/runtime.v1.RuntimeService/Version")
        for number in range(220):
            if number == 20:
                before = turns()
            try:
                await ask(b"", timeout=30)
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNIMPLEMENTED, error
        print(turns() - before)

asyncio.run(main())
"""
_SERVER = """
import asyncio, sys
import grpc.aio

async def main():
    server = grpc.aio.server()
    server.add_insecure_port(sys.argv[1])
    await server.start()
    print("serves", flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="a kernel without CONFIG_SCHED_INFO")
def test_calls_of_the_runtime_wake_no_thread_of_the_event_engine(tmp_path: Path) -> None:
    where = f"unix:{tmp_path}/runtime.sock"
    with subprocess.Popen([sys.executable, "-c", _SERVER, where], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None and server.stdout.readline() == "serves\n"
            turns = [_turns(where) for _ in range(3)]
        finally:
            server.kill()
    # 200 calls: each wakes one or two of them otherwise. Timers wake them, too: often, where a busy machine takes long.
    assert min(turns) < 100, turns


def _turns(where: str) -> int:
    argv = [sys.executable, "-c", _CLIENT, where]
    return int(subprocess.run(argv, cwd=_PROJECT, check=True, capture_output=True, text=True).stdout)
