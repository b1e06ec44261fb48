"""System calls of one process that fail, as on a full disk, a read-only file system or a kernel without memory.

strace's fault injection (https://man7.org/linux/man-pages/man1/strace.1.html, "Tampering") makes the calls return an
error without being made; a limit of open files is a real one, set by prlimit(2).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

# Calls that only change directories and files, never a socket: no connection breaks with them.
FILE_CHANGES = "mkdir,mkdirat,rename,renameat,renameat2,symlink,symlinkat,link,linkat,fsync,fdatasync"


def has_strace() -> bool:
    return shutil.which("strace") is not None


@contextlib.asynccontextmanager
async def failing_calls(pid: int, calls: str, error: str, every: int = 1) -> AsyncIterator[None]:
    """Each `every`-th of these calls of the process fails with `error` (ENOSPC, ...), in all of its threads."""
    when = f"1+{every}"
    words = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid)]
    words += ["-e", f"trace={calls}", "-e", f"inject={calls}:error={error}:when={when}"]
    tracer = subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        async with asyncio.timeout(30):
            while _tracer_of(pid) != tracer.pid:
                assert tracer.poll() is None, tracer.stderr and tracer.stderr.read()
                await asyncio.sleep(0.05)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(tracer.wait, 20)
        tracer.kill()
        tracer.wait()
        if tracer.stderr:
            tracer.stderr.close()


@contextlib.asynccontextmanager
async def no_more_files(pid: int, spare: int = 0) -> AsyncIterator[None]:
    """The process may not open more files than it has now, and `spare`."""
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir(f"/proc/{pid}/fd"))
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (min(highest + 1 + spare, before[1]), before[1]))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def _tracer_of(pid: int) -> int:
    found = re.search(r"^TracerPid:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
