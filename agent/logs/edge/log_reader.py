"""Read container logs as the runtime writes them: whole lines, from any start, through rotations.

The current log is `N.log`. A rotation renames it to `N.log.<time>` and the runtime opens a new one, perhaps still
writing to the old one for a moment; older files become `N.log.<time>.gz`. A follower keeps its file open and continues
with the next one by name, so it loses nothing however late it reads. Same files as upstream's pkg/kubelet/logs, whose
own reader skips a file when two rotations happen between two reads.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import BinaryIO, Protocol

from agent.common.edge.inotify import Inotify
from agent.logs.edge import log_folder
from agent.logs.edge.packed_log import PackedLog
from agent.logs.model import IsRunning
from nodelib import files
from nodelib.backoff import Backoff
from nodelib.errors import NotFound
from nodelib.threads import in_thread_if

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 20  # bytes; a longer "line", which the runtime never writes, is passed on in pieces
_FURTHEST = 256 << 20  # bytes from the end in which the last lines are looked for
MOST_TAILS = 2  # looks for last lines at a time: they must not take all threads that the agent has
_SETTLE = 0.2  # seconds to wait for late writes before a rotated file counts as complete
_LATE = 10.0  # seconds in which a rotated file is still checked for late writes
_SILENCE = 1.0  # seconds without an event until the container's state is checked again
_SILENCE_AFTER_CLOSE = 0.1  # the same after a writer has closed its file
_PAUSES = 0.02, 1.0  # seconds, the first and the longest, after changes of the folder that bring no lines
_ASK_RUNTIME_EVERY = 10  # checks of the container's state


class LogFile:
    """One open log file that is read by lines. `stop_at_end`: read no further than the end that it has now."""

    def __init__(self, path: str, *, stop_at_end: bool = False) -> None:
        self.path = path
        self._pending = bytearray()  # read already, without a newline
        self._packed: PackedLog | None = None
        try:
            self._file: BinaryIO = _opened(path)
        except FileNotFoundError:
            self._file = _open_packed(path)
            self._packed = PackedLog(self._file)
        self._at = 0
        self._stop = os.fstat(self._file.fileno()).st_size if stop_at_end else None

    @property
    def inode(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_dev, found.st_ino

    @property
    def is_packed(self) -> bool:
        return self._packed is not None

    @property
    def unread(self) -> int:
        """Bytes on disk that are not read yet, unless it is packed."""
        size = os.fstat(self._file.fileno()).st_size if self._stop is None else self._stop
        return size - self._at

    def skip_to_tail(self, lines: int) -> None:
        """Move to the start of the last `lines` lines; an unfinished last line does not count."""
        end = os.fstat(self._file.fileno()).st_size if self._stop is None else self._stop
        self._at = tail_offset(self._file.fileno(), end, lines, max(0, end - _FURTHEST))

    def read_lines(self) -> bytes:
        """The next whole lines, b"" when there are none yet."""
        while True:
            data = self._read()
            if not data:
                return b""
            cut = data.rfind(b"\n") + 1
            if not cut and len(self._pending) + len(data) > _LONGEST_LINE:
                cut = len(data)
            if cut:
                lines, self._pending = bytes(self._pending) + data[:cut], bytearray(data[cut:])
                return lines
            self._pending += data

    def rest(self) -> bytes:
        """The bytes after the last newline."""
        rest, self._pending = bytes(self._pending), bytearray()
        return rest

    def close(self) -> None:
        self._file.close()

    def _read(self) -> bytes:
        if self._packed is not None:
            return self._packed.read(_CHUNK)
        unread = self.unread
        if unread < 0:  # truncated in place: start again
            self._at, self._pending = 0, bytearray()
        data = os.pread(
            self._file.fileno(), min(_CHUNK, max(unread, 0)) if self._stop is not None else _CHUNK, self._at
        )
        self._at += len(data)
        return data


def _opened(path: str) -> BinaryIO:
    """A pod may have the folder: a pipe in the place of a log would be waited for, on the event loop."""
    try:
        return os.fdopen(files.readable(os.open(path, os.O_PATH | os.O_CLOEXEC)), "rb", buffering=0)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        raise NotFound(f'failed to open log file "{path}": it is not a regular file') from error


def _open_packed(path: str) -> BinaryIO:
    try:
        return _opened(path + ".gz")
    except FileNotFoundError as error:
        raise NotFound(
            f'failed to open log file "{path}": no such file',
            action="The container has not been started by the runtime yet, or its logs were removed.",
        ) from error


def tail_offset(descriptor: int, end: int, lines: int, least: int = 0) -> int:
    """The offset where the last `lines` lines before `end` begin, found by reading backwards, not beyond `least`."""
    right, seen = end, 0
    while right > least:
        left = max(least, right - _CHUNK)
        block = os.pread(descriptor, right - left, left)
        count = block.count(b"\n")
        if seen + count > lines:
            at = len(block)
            for _ in range(lines - seen + 1):
                at = block.rfind(b"\n", 0, at)
            return left + at + 1
        seen += count
        right = left
    return least


class Turns(Protocol):
    """agent/common/work/gate.py Gate."""

    def place(self, *, group: str) -> AbstractAsyncContextManager[None]: ...


class LogReader:
    """Container logs on this machine (agent.server.ports.LogReader). All followers share one inotify instance.

    `tails`: whose turn it is to look for last lines, MOST_TAILS at a time. That of a log which could not be rotated yet
    takes long, and hundreds of requests for it must not hold up those of other groups.
    """

    def __init__(self, inotify: Inotify, tails: Turns) -> None:
        self._inotify, self._tails = inotify, tails

    def read(self, path: str, tail_lines: int | None, group: str = "") -> AsyncGenerator[bytes, None]:
        return read(path, tail_lines, self._tails.place(group=group))

    def follow(
        self, path: str, tail_lines: int | None, is_running: IsRunning, group: str = ""
    ) -> AsyncGenerator[bytes, None]:
        return follow(path, tail_lines, self._inotify, is_running, self._tails.place(group=group))

    def close(self) -> None:
        self._inotify.close()


async def read(
    path: str, tail_lines: int | None, tails: AbstractAsyncContextManager[object] | None = None
) -> AsyncGenerator[bytes, None]:
    """All lines, or the last ones, that the file holds now, with an unfinished last line. Raises NotFound."""
    file = LogFile(os.path.realpath(path), stop_at_end=True)
    try:
        if tail_lines is not None:
            async with tails or nullcontext():
                await asyncio.to_thread(file.skip_to_tail, tail_lines)
        while lines := await _next(file):
            yield lines
        if rest := file.rest():
            yield rest
    finally:
        file.close()


async def follow(
    path: str,
    tail_lines: int | None,
    inotify: Inotify,
    is_running: IsRunning,
    tails: AbstractAsyncContextManager[object] | None = None,
) -> AsyncGenerator[bytes, None]:
    """Lines as they are written, through rotations, until the container has ended and everything is read.

    `is_running(sure)` says whether more may come; with `sure` it asks the runtime instead of using the last observed
    state. Raises NotFound when there is no log, Temporary when the kernel refuses a watch.
    """
    path = os.path.realpath(path)
    follower = _Follower(path)
    try:
        if tail_lines is not None:
            async with tails or nullcontext():
                await asyncio.to_thread(follower.log.skip_to_tail, tail_lines)
        with inotify.watch(os.path.dirname(path)) as watch:
            ended, sure, checks, soon, woken = False, True, 0, 0, False
            loop, pause = asyncio.get_running_loop(), Backoff(*_PAUSES)
            while not ended:
                ended, found = not await is_running(sure), False
                async for lines in follower.catch_up():
                    found = True
                    yield lines
                if ended:
                    break
                if woken and not found:  # by another file: its writer must not keep us, and the runtime, busy
                    await asyncio.sleep(pause.next())
                else:
                    pause.reset()
                began, silence = loop.time(), _SILENCE_AFTER_CLOSE if soon else _SILENCE
                closed = await watch.wait(silence)
                woken = loop.time() - began < silence
                # The runtime closes the log a moment before it reports that the container has ended.
                soon = 10 if closed else max(0, soon - 1)
                checks += 1
                sure = closed or checks % _ASK_RUNTIME_EVERY == 0
        if rest := follower.log.rest():
            yield rest
    finally:
        follower.close()


async def _next(file: LogFile) -> bytes:
    # New lines are in the page cache; a long backlog may have to come from a disk.
    return await in_thread_if(file.is_packed or file.unread > _CHUNK, file.read_lines)


class _Follower:
    """The file being read, its place in the order of rotations, and the file before it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.log = LogFile(path)
        self._stem: str | None = None  # the name that rotation gave our file; None while it is the current log
        self._seen = set(self._stems())  # at once: what is rotated from now on comes after ours
        self._older: tuple[LogFile, float] | None = None

    async def catch_up(self) -> AsyncIterator[bytes]:
        """All lines up to the end of the newest file."""
        settled = False
        while True:
            async for lines in self._drain_older():
                yield lines
            while lines := await _next(self.log):
                yield lines
            successor = None if self._is_current() else await asyncio.to_thread(self._successor)
            if successor is None:
                return
            # The runtime may still write buffered lines into the renamed file.
            if successor == self.path and not settled:
                await asyncio.sleep(_SETTLE)
                settled = True
                continue
            newer = await asyncio.to_thread(self._open, successor)
            if newer is None:
                continue
            if rest := self.log.rest():
                yield rest
            self._retire()
            self._stem = None if successor == self.path else os.path.basename(successor)
            self.log = newer
            settled = False

    def _open(self, successor: str) -> LogFile | None:
        """None when it was rotated or removed meanwhile: list the files again."""
        try:
            newer = LogFile(successor)
        except NotFound:
            return None
        if successor == self.path and any(stem not in self._seen for stem in self._stems()):
            newer.close()
            return None
        return newer

    def close(self) -> None:
        self.log.close()
        if self._older is not None:
            self._older[0].close()

    def _retire(self) -> None:
        if self._older is not None:
            self._older[0].close()
        self._older = (self.log, asyncio.get_running_loop().time() + _LATE)

    async def _drain_older(self) -> AsyncIterator[bytes]:
        if self._older is None:
            return
        older, until = self._older
        while lines := await _next(older):
            yield lines
        if asyncio.get_running_loop().time() > until:
            older.close()
            self._older = None

    def _stems(self) -> list[str]:
        """Names of the rotated files without .gz, oldest first."""
        folder, base = os.path.split(self.path)
        with suppress(FileNotFoundError):
            names = {name.removesuffix(".gz") for name in log_folder.names(folder) if name.startswith(base + ".")}
            return sorted(name for name in names if not name.endswith(".tmp"))
        return []

    def _is_current(self) -> bool:
        """Whether ours is the file that the runtime writes to."""
        if self._inode_at(self.path) != self.log.inode:
            return False
        self._stem = None
        return True

    def _inode_at(self, path: str) -> tuple[int, int] | None:
        with suppress(FileNotFoundError):
            found = os.stat(path)
            return found.st_dev, found.st_ino
        return None

    def _successor(self) -> str | None:
        """The path of the file written after ours, None when ours is the newest. Blocking, as all that lists files."""
        current = self._inode_at(self.path)
        if current == self.log.inode:
            self._stem = None
            return None
        stems = self._stems()
        fresh = [stem for stem in stems if stem not in self._seen]
        self._seen.update(fresh)
        if self._stem is None and fresh:
            self._stem = fresh[0]
        later = [stem for stem in stems if self._stem is not None and stem > self._stem]
        if later:
            return os.path.join(os.path.dirname(self.path), later[0])
        return self.path if current is not None else None
