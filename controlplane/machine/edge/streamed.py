"""Runs a long command with its output in a log file, and in callbacks as it comes."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
from collections.abc import Callable, Sequence

from nodelib.command import CommandError

_PATIENCE = 40.0  # seconds for a command to end after SIGINT; ginkgo gives the tests that run 30


async def run_lines(
    argv: Sequence[str], *, log: str, on_line: Callable[[str], None], on_text: Callable[[str], None]
) -> int:
    """Exit status of the command. `on_text` gets every piece at once, also of a line that has not ended yet.

    Cancelled, it interrupts the command's process group and waits for its end, in vain at last: then it kills it.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(argv, 127, b"", reason=f"cannot start: {error}") from error
    assert process.stdout is not None
    try:
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        pending = ""
        with open(log, "wb", buffering=0) as file:
            while piece := await process.stdout.read(1 << 16):
                file.write(piece)
                text = decoder.decode(piece)
                on_text(text)
                *lines, pending = (pending + text).split("\n")
                for line in lines:
                    on_line(line)
        if pending:
            on_line(pending)
        return await process.wait()
    except asyncio.CancelledError:
        # Read on, or it would wait for room in the pipe; whoever holds that when it is killed is not waited for.
        for number, seconds in ((signal.SIGINT, _PATIENCE), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                os.killpg(process.pid, number)
                await asyncio.wait_for(process.communicate(), seconds)
                break
        raise
