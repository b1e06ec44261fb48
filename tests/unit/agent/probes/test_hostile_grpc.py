"""Servers in pods that a gRPC probe asks, and that end the connection as soon as it is there."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from pathlib import Path

from agent.probes import grpc_check
from agent.probes.model import GrpcRequest, Verdict

_MOST = 400 << 20  # bytes; the test's process has less than 100
_SETTINGS = bytes.fromhex("000000040000000000") + bytes.fromhex("000000040100000000")
_GOAWAY = bytes.fromhex("000008070000000000") + bytes.fromhex("0000000000000002")  # INTERNAL_ERROR


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(24)
    writer.write(_SETTINGS + _GOAWAY)
    await asyncio.sleep(1)
    writer.close()


async def _probe() -> None:
    """Exits with 1 if the process grows."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    request = GrpcRequest("127.0.0.1", server.sockets[0].getsockname()[1], "")
    for _ in range(10):
        found = await asyncio.gather(*(grpc_check.check(request, 0.5) for _ in range(20)))
        assert all(one.verdict is Verdict.FAILURE for one in found)
        used = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        if used > _MOST:
            print(f"{used >> 20} MiB")  # for the test that started this process
            os._exit(1)
    os._exit(0)


async def test_a_server_that_says_goodbye_at_once_takes_no_memory() -> None:
    """The library tried the call again within itself, without end, and kept something of each try: 60 to 80 probes, and
    the agent took 100 MB each second, until the node had none left."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __name__, stdout=asyncio.subprocess.PIPE, env={**os.environ, "GRPC_VERBOSITY": "NONE"}
    )
    try:
        async with asyncio.timeout(90):
            said, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, said.decode()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    asyncio.run(_probe())
