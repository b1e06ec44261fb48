"""Runs a long command with its output in a log file, line by line in a callback as well."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence

from nodelib.command import CommandError


async def run_lines(argv: Sequence[str], *, log: str, on_line: Callable[[str], None]) -> int:
    """Exit status of the command. Cancelled, it interrupts the command's whole session and waits for its end."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
    except OSError as error:
        raise CommandError(argv, 127, b"", reason=f"cannot start: {error}") from error
    assert process.stdout is not None
    try:
        with open(log, "wb") as file:
            while True:
                try:
                    line = await process.stdout.readuntil(b"\n")
                except asyncio.IncompleteReadError as end:
                    line = end.partial
                except asyncio.LimitOverrunError as over:
                    line = await process.stdout.readexactly(over.consumed)
                if not line:
                    break
                file.write(line)
                on_line(line.decode(errors="replace").rstrip("\n"))
        return await process.wait()
    except asyncio.CancelledError:
        os.killpg(process.pid, signal.SIGINT)
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        raise
