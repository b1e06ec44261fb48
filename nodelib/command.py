"""The only place that starts processes and waits for them.

Both forms give the whole output back and raise one error type that names the command,
its exit status and what it printed, so that callers never parse a bare CalledProcessError.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodelib.errors import Temporary

_SHOWN = 2000  # characters of stderr in an error message


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
    """A command that failed, timed out (returncode None) or could not be started (127)."""

    def __init__(self, argv: Sequence[str], returncode: int | None, stderr: bytes, *, reason: str = "") -> None:
        said = stderr.decode(errors="replace").strip()[-_SHOWN:]
        outcome = reason or f"exit status {returncode}"
        super().__init__(f"{outcome}: {said}" if said else outcome, step=" ".join(argv[:6]))
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
) -> Completed:
    """Run to the end without blocking the loop. `timeout` in seconds: the process group is killed then."""
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
        out, err = await asyncio.wait_for(process.communicate(stdin), timeout)
    except (TimeoutError, asyncio.CancelledError) as error:
        _kill_group(process.pid)
        await process.wait()
        if isinstance(error, asyncio.CancelledError):
            raise
        raise CommandError(argv, None, b"", reason=f"no end after {timeout:g} s, killed") from error
    return _finish(argv, process.returncode or 0, out, err, check)


def run_sync(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    check: bool = True,
) -> Completed:
    """The same for code that has no event loop (the CLI, threads)."""
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
        raise CommandError(argv, None, b"", reason=f"no end after {timeout:g} s, killed") from error
    except OSError as error:
        raise CommandError(argv, 127, b"", reason=f"cannot start: {error}") from error
    return _finish(argv, done.returncode, done.stdout, done.stderr, check)


class Keeper:
    """Another process that has these descriptors too: for as long as this one lives, and `seconds` beyond its end.

    What is on their other side does not see that this process was killed. Raises CommandError when it cannot start.
    """

    _ARGV = ("sh", "-c", 'read -r _; exec sleep "$0"')

    def __init__(self, descriptors: Sequence[int], seconds: int) -> None:
        argv = [*self._ARGV, str(seconds)]
        try:
            # It reads a pipe that only this process writes to: its end is this process's end.
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
        """Let go now."""
        self._process.kill()
        self._process.communicate()

    def leave(self) -> None:
        """As if this process had ended now: the other one keeps them for its `seconds`, and is not waited for."""
        if self._process.stdin is not None:
            self._process.stdin.close()


def _finish(argv: Sequence[str], code: int, out: bytes, err: bytes, check: bool) -> Completed:
    if check and code != 0:
        raise CommandError(argv, code, err or out)
    return Completed(tuple(argv), code, out, err)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
