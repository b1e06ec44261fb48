"""Runs processes; no other module starts any.

Both forms return the whole output and raise one error type with the command, its exit status and what it printed, so
callers need no CalledProcessError.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

from nodelib.errors import Temporary
from nodelib.tasks import cancel_and_wait

_SHOWN = 2000  # characters of stderr in an error message
_MOST = 1 << 30  # bytes of output; the rules of 30,000 Services are 40 MiB
_PIECE = 1 << 16  # bytes of output that are read at once
_LEFT_OPEN = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Completed:
    """A process that has ended: its command line, exit status and output."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        return self.stdout.decode(errors="replace")


class CommandError(Temporary):
    """A command failed, timed out (returncode None) or could not be started (returncode 127)."""

    def __init__(self, argv: Sequence[str], returncode: int | None, stderr: bytes, *, reason: str = "") -> None:
        output = stderr.decode(errors="replace").strip()[-_SHOWN:]
        outcome = reason or f"exit status {returncode}"
        super().__init__(f"{outcome}: {output}" if output else outcome, step=" ".join(argv[:6]))
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stderr = stderr


async def run(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    check: bool = True,
    most: int = _MOST,
) -> Completed:
    """Run a command without blocking the event loop.

    After `timeout` seconds, or when it prints more than `most` bytes, its process group is killed.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(argv, 127, b"", reason=f"cannot start: {error}") from error
    try:
        # Not wait_for(), which swallows a cancellation when the command has just ended (before Python 3.12).
        async with asyncio.timeout(timeout):
            out, err = await _communicate(process, stdin, most)
    except (TimeoutError, _TooMuch, asyncio.CancelledError) as error:
        _kill_group(process.pid)
        await _drained(process)
        if isinstance(error, asyncio.CancelledError):
            raise
        why = f"not finished after {timeout:g} s" if isinstance(error, TimeoutError) else str(error)
        raise CommandError(argv, None, b"", reason=f"{why}, killed") from error
    return _finish(argv, process.returncode or 0, out, err, check)


async def stream(
    argv: Sequence[str], *, timeout: float = 60, env: Mapping[str, str] | None = None
) -> AsyncGenerator[bytes, None]:
    """What a command prints, errors included, as it prints it; no more of it is kept than one piece.

    After `timeout` seconds, and when the reader goes, its process group is killed. Raises CommandError if it cannot be
    started or takes too long; a failure of the command is in what it prints.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=env,
            start_new_session=True,
            limit=_PIECE,
        )
    except OSError as error:
        raise CommandError(argv, 127, b"", reason=f"cannot start: {error}") from error
    try:
        assert process.stdout is not None
        until = asyncio.get_running_loop().time() + timeout
        while True:
            try:
                # Not wait_for(), which swallows a cancellation when there is always something to read (before 3.12).
                async with asyncio.timeout_at(until):
                    piece = await process.stdout.read(_PIECE)
            except TimeoutError as error:
                raise CommandError(argv, None, b"", reason=f"not finished after {timeout:g} s, killed") from error
            if not piece:
                return
            yield piece
    finally:
        _kill_group(process.pid)
        await _drained(process)


def run_sync(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    check: bool = True,
) -> Completed:
    """The same for code without an event loop (the CLI, threads)."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout,
            env=env,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(argv, None, b"", reason=f"not finished after {timeout:g} s, killed") from error
    except OSError as error:
        raise CommandError(argv, 127, b"", reason=f"cannot start: {error}") from error
    return _finish(argv, done.returncode, done.stdout, done.stderr, check)


class Keeper:
    """Another process that keeps copies of file descriptors open, while this process lives and `seconds` longer.

    So the peers of these descriptors do not notice that this process was killed. Raises CommandError when it cannot be
    started.
    """

    _ARGV = ("sh", "-c", 'read -r _; exec sleep "$0"')

    def __init__(self, descriptors: Sequence[int], seconds: int) -> None:
        argv = [*self._ARGV, str(seconds)]
        try:
            # It reads a pipe that only this process has open for writing: end of file means that it has ended.
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=descriptors,
                start_new_session=True,
            )
        except OSError as error:
            raise CommandError(argv, 127, b"", reason=f"cannot start: {error}") from error

    def end(self) -> None:
        """Close the copies now."""
        self._process.kill()
        self._process.communicate()

    def leave(self) -> None:
        """Act as if this process had ended: the copies stay open for `seconds`. Does not wait."""
        if self._process.stdin is not None:
            self._process.stdin.close()


class _TooMuch(Exception):
    """More output than somebody asked for."""


async def _communicate(process: asyncio.subprocess.Process, stdin: bytes | None, most: int) -> tuple[bytes, bytes]:
    """As process.communicate(), with an end. Raises _TooMuch."""

    async def write() -> bytes:
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                # uvloop notices at once that the reader is gone, and raises a RuntimeError for a write after that.
                if not process.stdin.is_closing():
                    process.stdin.write(stdin or b"")
                    await process.stdin.drain()
            process.stdin.close()
        return b""

    async def read(pipe: asyncio.StreamReader | None) -> bytes:
        found = bytearray()
        while pipe is not None and (piece := await pipe.read(_PIECE)):
            found += piece
            if len(found) > most:
                raise _TooMuch(f"printed more than {most} bytes")
        return bytes(found)

    parts = [asyncio.ensure_future(one) for one in (write(), read(process.stdout), read(process.stderr))]
    try:
        _, out, err = await asyncio.gather(*parts)
    finally:
        await cancel_and_wait(*parts)  # whoever has the pipes after the kill is not waited for
    await process.wait()
    return out, err


def _finish(argv: Sequence[str], code: int, out: bytes, err: bytes, check: bool) -> Completed:
    if check and code != 0:
        raise CommandError(argv, code, err or out)
    return Completed(tuple(argv), code, out, err)


async def _drained(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that was killed. asyncio says that it has ended only when its pipes have been read, too."""

    async def drain(pipe: asyncio.StreamReader | None) -> None:
        while pipe is not None and await pipe.read(_PIECE):
            pass

    with contextlib.suppress(TimeoutError):  # a process that left the group may have a pipe open still
        async with asyncio.timeout(_LEFT_OPEN):
            await asyncio.gather(drain(process.stdout), drain(process.stderr))
            await process.wait()
            return
    # https://github.com/python/cpython/issues/88050: a transport that is left open complains once the loop is closed.
    process._transport.close()  # type: ignore[attr-defined]


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
