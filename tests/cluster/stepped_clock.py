"""Agents whose wall clock a test steps; the machine's own clock, which others use too, stays as it is.

    python -m tests.cluster.stepped_clock FILE MODULE ARGUMENT...

runs a module as that program would, with the seconds that FILE holds (a double) added to time.time() and time_ns().
"""

from __future__ import annotations

import contextlib
import mmap
import os
import runpy
import struct
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.cluster.faulty_runtime import agent_changed
from tests.cluster.world import World

_OFFSET = struct.Struct("d")
_MODULE = "tests.cluster.stepped_clock"


@contextlib.asynccontextmanager
async def stepped_clock(world: World, node: str) -> AsyncIterator[Callable[[float], None]]:
    """During the block the node's agent has a clock of its own; call the function to set how many seconds it is off."""
    file = Path(world.cluster.node_dir(node), "clock")
    file.write_bytes(_OFFSET.pack(0))

    def step(seconds: float) -> None:
        with open(file, "r+b") as there:
            there.write(_OFFSET.pack(seconds))

    def with_clock(agent: dict[str, Any]) -> None:
        at = agent["argv"].index("-m") + 1
        agent["argv"][at:at] = [_MODULE, str(file)]

    try:
        async with agent_changed(world, node, with_clock):
            yield step
            step(0)
    finally:
        file.unlink()


def _step_this_process(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    there = mmap.mmap(handle, _OFFSET.size, prot=mmap.PROT_READ)
    os.close(handle)
    real, real_ns = time.time, time.time_ns
    time.time = lambda: real() + _OFFSET.unpack_from(there)[0]
    time.time_ns = lambda: real_ns() + int(_OFFSET.unpack_from(there)[0]) * 1_000_000_000


if __name__ == "__main__":
    _step_this_process(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
