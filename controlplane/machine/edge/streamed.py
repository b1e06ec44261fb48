"""Runs a long command and passes its output to a log file and to callbacks as it arrives."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
from collections.abc import Callable, Sequence

from nodelib.command import CommandError
from nodelib.files import no_link

_PATIENCE = 40.0  # seconds for a command to exit after SIGINT; ginkgo gives running tests 30


async def run_lines(
    argv: Sequence[str], *, log: str, on_line: Callable[[str], None], on_text: Callable[[str], None]
) -> int:
    """Run the command and return its exit status. `on_text` gets every piece at once, even of an unfinished line.

    When cancelled, it interrupts the command's process group, waits for it to exit, and in the end kills it.
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
        with open(log, "wb", buffering=0, opener=no_link) as file:  # a node may write to the folder
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
        # Keep reading, or the command would block on a full pipe. Whoever still has the pipe after the kill is ignored.
        for number, seconds in ((signal.SIGINT, _PATIENCE), (signal.SIGKILL, 5.0)):
            with contextlib.suppress(ProcessLookupError, TimeoutError):
                os.killpg(process.pid, number)
                async with asyncio.timeout(seconds):
                    await process.communicate()
                break
        raise
