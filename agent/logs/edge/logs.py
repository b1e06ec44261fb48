"""Container log files as the runtime writes them: whole lines out, from any start, through rotations.

The current log is `N.log`; a rotation renames it to `N.log.<time>` and the runtime opens a new
one, perhaps still writing to the old for a moment; older ones become `N.log.<time>.gz`. A
follower keeps its open file and goes on to what came after it by name, so that nothing is
lost however late it looks. Same files as upstream's pkg/kubelet/logs; upstream's own reader
skips a file when two rotations pass between two looks.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import os
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import BinaryIO

from agent.common.edge.inotify import Inotify
from agent.logs.model import IsRunning
from nodelib.errors import NotFound

log = logging.getLogger(__name__)

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 24  # a "line" beyond this is not a log: it is passed on as it is
_SETTLE = 0.2  # seconds without growth until a rotated file counts as complete
_LATE = 10.0  # seconds in which a rotated file is still looked at for late writes
_SILENCE = 1.0  # seconds without an event until the container's state is looked at again
_SOON = 0.1  # the same after a writer has closed its file
_SURE_EVERY = 10  # looks


class LogFile:
    """One open log file that is read line by line. `stop_at`: read no further than this offset."""

    def __init__(self, path: str, *, stop_at_end: bool = False) -> None:
        self.path = path
        self._pending = b""
        self._packed: gzip.GzipFile | None = None
        try:
            self._file: BinaryIO = open(path, "rb", buffering=0)  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            self._file = _open_packed(path)
            self._packed = gzip.GzipFile(fileobj=self._file)
        self._at = 0
        self._stop = os.fstat(self._file.fileno()).st_size if stop_at_end else None

    @property
    def inode(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_dev, found.st_ino

    @property
    def unread(self) -> int:
        """Bytes on disk that were not read yet (of a compressed file: unknown, a chunk)."""
        if self._packed is not None:
            return _CHUNK
        size = os.fstat(self._file.fileno()).st_size if self._stop is None else self._stop
        return size - self._at

    def skip_to_tail(self, lines: int) -> None:
        """Go to the start of the last `lines` lines; an unfinished last line is not counted."""
        end = os.fstat(self._file.fileno()).st_size if self._stop is None else self._stop
        self._at = tail_offset(self._file.fileno(), end, lines)

    def read_lines(self) -> bytes:
        """The next whole lines, b"" when there are none (yet)."""
        while True:
            data = self._read()
            if not data:
                return b""
            self._pending += data
            cut = self._pending.rfind(b"\n") + 1
            if not cut and len(self._pending) > _LONGEST_LINE:
                cut = len(self._pending)
            if cut:
                lines, self._pending = self._pending[:cut], self._pending[cut:]
                return lines

    def rest(self) -> bytes:
        """What stands behind the last newline."""
        rest, self._pending = self._pending, b""
        return rest

    def close(self) -> None:
        self._file.close()

    def _read(self) -> bytes:
        if self._packed is not None:
            return _unpacked(self._packed)
        unread = self.unread
        if unread < 0:  # truncated in place: start again
            self._at, self._pending = 0, b""
        data = os.pread(
            self._file.fileno(), min(_CHUNK, max(unread, 0)) if self._stop is not None else _CHUNK, self._at
        )
        self._at += len(data)
        return data


def _unpacked(packed: gzip.GzipFile) -> bytes:
    try:
        return packed.read(_CHUNK)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        log.warning("a compressed log is damaged, its rest is left out: %s", error)
        return b""


def _open_packed(path: str) -> BinaryIO:
    try:
        return open(path + ".gz", "rb")
    except FileNotFoundError as error:
        raise NotFound(
            f'failed to open log file "{path}": no such file',
            action="The container has not been started by the runtime yet, or its logs were removed.",
        ) from error


def tail_offset(descriptor: int, end: int, lines: int) -> int:
    """Where the last `lines` lines before `end` begin, found by reading backwards."""
    right, seen = end, 0
    while right > 0:
        left = max(0, right - _CHUNK)
        block = os.pread(descriptor, right - left, left)
        count = block.count(b"\n")
        if seen + count > lines:
            at = len(block)
            for _ in range(lines - seen + 1):
                at = block.rfind(b"\n", 0, at)
            return left + at + 1
        seen += count
        right = left
    return 0


class Logs:
    """Container logs on this machine (agent.server.ports.LogReader); all followers share one inotify instance."""

    def __init__(self, inotify: Inotify) -> None:
        self._inotify = inotify

    def read(self, path: str, tail_lines: int | None) -> AsyncGenerator[bytes, None]:
        return read(path, tail_lines)

    def follow(self, path: str, tail_lines: int | None, is_running: IsRunning) -> AsyncGenerator[bytes, None]:
        return follow(path, tail_lines, self._inotify, is_running)

    def close(self) -> None:
        self._inotify.close()


async def read(path: str, tail_lines: int | None) -> AsyncGenerator[bytes, None]:
    """All lines that the file holds now (or its last ones), an unfinished last line too. Raises NotFound."""
    file = LogFile(os.path.realpath(path), stop_at_end=True)
    try:
        if tail_lines is not None:
            await asyncio.to_thread(file.skip_to_tail, tail_lines)
        while lines := await _next(file):
            yield lines
        if rest := file.rest():
            yield rest
    finally:
        file.close()


async def follow(
    path: str, tail_lines: int | None, inotify: Inotify, is_running: IsRunning
) -> AsyncGenerator[bytes, None]:
    """Lines as they are written, through rotations, until the container has ended and all is read.

    `is_running(sure)` tells whether more may come; `sure` asks for the runtime's own word
    instead of what was last heard. Raises NotFound when there is no log, Temporary when the
    kernel refuses a watch.
    """
    path = os.path.realpath(path)
    follower = _Follower(path)
    try:
        if tail_lines is not None:
            await asyncio.to_thread(follower.log.skip_to_tail, tail_lines)
        with inotify.watch(os.path.dirname(path)) as watch:
            ended, sure, looks, soon = False, True, 0, 0
            while not ended:
                ended = not await is_running(sure)
                async for lines in follower.catch_up():
                    yield lines
                if ended:
                    break
                closed = await watch.wait(_SOON if soon else _SILENCE)
                # The runtime closes the log a moment before it says that the container has ended.
                soon = 10 if closed else max(0, soon - 1)
                looks += 1
                sure = closed or looks % _SURE_EVERY == 0
        if rest := follower.log.rest():
            yield rest
    finally:
        follower.close()


async def _next(file: LogFile) -> bytes:
    # Fresh lines come from the page cache; a long backlog may come from a disk.
    return await asyncio.to_thread(file.read_lines) if file.unread > _CHUNK else file.read_lines()


class _Follower:
    """The file being read, its place in the order of rotations, and the one before it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.log = LogFile(path)
        self._stem: str | None = None  # the name that our file has got by rotation; None: it is the current one
        self._seen = set(self._stems())
        self._older: tuple[LogFile, float] | None = None

    async def catch_up(self) -> AsyncIterator[bytes]:
        """All lines up to the newest end."""
        settled = False
        while True:
            async for lines in self._drain_older():
                yield lines
            while lines := await _next(self.log):
                yield lines
            successor = self._successor()
            if successor is None:
                return
            # The runtime may still be writing what it had in hand into the file that was renamed.
            if successor == self.path and not settled:
                await asyncio.sleep(_SETTLE)
                settled = True
                continue
            newer = self._open(successor)
            if newer is None:
                continue
            if rest := self.log.rest():
                yield rest
            self._retire()
            self._stem = None if successor == self.path else os.path.basename(successor)
            self.log = newer
            settled = False

    def _open(self, successor: str) -> LogFile | None:
        """None: it was rotated or removed meanwhile, look again."""
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
        while lines := older.read_lines():
            yield lines
        if asyncio.get_running_loop().time() > until:
            older.close()
            self._older = None

    def _stems(self) -> list[str]:
        """Names of the rotated files, oldest first, without .gz."""
        folder, base = os.path.split(self.path)
        with suppress(FileNotFoundError):
            names = {name.removesuffix(".gz") for name in os.listdir(folder) if name.startswith(base + ".")}
            return sorted(name for name in names if not name.endswith(".tmp"))
        return []

    def _successor(self) -> str | None:
        """The path of what was written after our file; None: ours is the newest."""
        current = None
        with suppress(FileNotFoundError):
            found = os.stat(self.path)
            current = (found.st_dev, found.st_ino)
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
